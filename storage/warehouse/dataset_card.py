"""The card of a data set: metadata that the Hugging Face hub reads, files with their sizes, queries, all columns."""

from collections.abc import Mapping, Sequence

import duckdb
import yaml

import sql
from storage.warehouse.documentation import format_cell, render_example, render_result, render_table
from storage.warehouse.query import query

QUERIES = ("29_what_heads_look_at", "24_more_than_chance", "28_tokens_that_heads_select")
"""Worked examples that read the tables of every data set."""

TITLE = "Attention heads as geometric classifiers"

_ABOUT = """\
Each attention head is read as a classifier ([arXiv 2602.01893](https://arxiv.org/abs/2602.01893)): the N keys of
largest weight are selected, and Precision, Recall and F say how well a ball around the sum of their weighted value
states separates them from the others, for every N, beside random keys and shuffled value states. Intervals are of
95 %, over sequences. Written by `attention-geometry publish --dataset`.
"""

_STUDIES = """
FROM studies
SELECT study, model, model_name, weights, corpus_name AS corpus, sequences, context_length, layers, heads
ORDER BY study
"""

_ATTACH = """\
The database attaches read-only from any host, in DuckDB 1.5 or newer; a host that answers range requests sends only the
blocks that a query reads. It has all tables with their comments, and the macros and views that read these alone:

```sql
INSTALL httpfs;
LOAD httpfs;
ATTACH 'https://HOST/FOLDER/{database}' AS dataset (READ_ONLY);
USE dataset;
```

A single table, from DuckDB or from Python: `FROM 'https://HOST/FOLDER/{first}.parquet'`,
`datasets.load_dataset("OWNER/NAME", "{first}")`.
"""


def render_card(
    connection: duckdb.DuckDBPyConnection,
    study: str,
    tables: Sequence[str],
    files: Mapping[str, int],
    database: str,
    licence: str | None,
) -> str:
    """The card as Markdown, with its metadata as YAML in front.

    Its queries are about ``study``; the hub shows the first of the ``tables``. ``files`` are the sizes in bytes of all
    other files by name, of which ``database`` is the DuckDB file.
    """
    stated = f"The licence is `{licence}`." if licence else "No licence is stated."
    lines = [
        *("---", _render_metadata(tables, licence) + "---", "", f"# {TITLE}", "", _ABOUT),
        *("## Studies", "", f"{stated} The texts that the models read are in `tokens`, token by token.", ""),
        *render_result(connection.sql(_STUDIES).to_arrow_table()),
        *("", "## Files", "", *_render_files(connection, tables, files, database), ""),
        *("## Queries", "", _ATTACH.format(database=database, first=tables[0])),
    ]
    for name in QUERIES:
        example = sql.read_statement("tour", name)
        text = render_example(example, study)
        result = query(connection, text).read_all()
        lines += [f"### {example.meaning}", "", "```sql", text, "```", "", *render_result(result), ""]
    lines += ["## Columns", ""]
    for name in tables:
        lines += [f"### {name}", "", *_render_columns(connection, name), ""]
    return "\n".join(lines)


def _render_metadata(tables: Sequence[str], licence: str | None) -> str:
    """The metadata of the card as YAML; each table is a configuration, and its file has one split."""
    configs = [{"config_name": name, "data_files": f"{name}.parquet"} for name in tables]
    metadata = {
        "pretty_name": TITLE,
        **({"license": licence} if licence else {}),
        "tags": ["attention", "interpretability", "arxiv:2602.01893"],
        "configs": [{**configs[0], "default": True}, *configs[1:]],
    }
    return yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)


def _render_files(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[str], files: Mapping[str, int], database: str
) -> list[str]:
    """The lines of the table of files, and their size in all."""
    counted = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in tables}  # noqa: S608
    rows = [
        [
            f"[{name}.parquet]({name}.parquet)",
            f"{counted[name]:,}",
            format_size(files[f"{name}.parquet"]),
            _find_grain(name),
        ]
        for name in tables
    ]
    rows.append([f"[{database}]({database})", f"{sum(counted.values()):,}", format_size(files[database]), "all tables"])
    return [
        *render_table(("file", "rows", "size", "what a row is"), rows),
        "",
        f"{format_size(sum(files.values()))} in all.",
    ]


def _find_grain(name: str) -> str:
    """What a row of a table is."""
    described = sql.read_statement("views" if name in sql.list_names("views") else "schema", name)
    return format_cell(described.grain.removeprefix("one row per "))


def _render_columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    """The meaning of a table, and name, type and meaning of each column, as the database has them."""
    about = connection.execute("SELECT comment FROM duckdb_tables() WHERE table_name = ?", [name]).fetchall()[0][0]
    columns = connection.execute(
        "SELECT column_name, lower(data_type), comment FROM duckdb_columns() "
        "WHERE table_name = ? AND database_name = current_database() ORDER BY column_index",
        [name],
    ).fetchall()
    rows = [[f"`{column}`", kind, format_cell(meaning)] for column, kind, meaning in columns]
    return [f"{format_cell(about[0].upper() + about[1:])}.", "", *render_table(("column", "type", "meaning"), rows)]


def format_size(size: int) -> str:
    """A number of bytes in kB, or from one megabyte on in MB."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
