"""A data set for others: the main tables of landed studies as Parquet and as one DuckDB file, with a card.

Why the DuckDB file holds the tables themselves: views over the Parquet files would need the address of the host, which
is not known when they are written, and could not be opened from a disk. A reader who attaches it over HTTP fetches only
the blocks that a query reads.
"""

import errno
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import duckdb
import pyarrow as pa
import yaml

import sql
from storage.warehouse.connection import READABLE_FROM
from storage.warehouse.documentation import format_cell, render_example, render_result, render_table
from storage.warehouse.landing import SPACE_ERRORS
from storage.warehouse.query import query
from storage.warehouse.relations import classify_relation, comment, find_tables_read, quote_literal

DATABASE = "dataset.duckdb"
"""The DuckDB file of a data set."""

CARD = "README.md"
"""The description of a data set."""

TABLES = (
    *("head_measures", "head_labels", "head_taxonomy", "head_pattern_means", "head_ablation"),
    *("selection_means", "selection_means_model", "separability", "separability_model", "key_budgets", "elbows"),
    *("top_keys", "assumption_norms", "assumption_similarity", "assumption_weights", "assumption_weights_model"),
    *("sparsified_loss", "measures", "claims", "claim_parts", "studies", "heads", "tokens"),
)
"""The tables and views of the warehouse that a data set has, as far as they have rows.

Left out are those that have a row for each sequence, head and N, many times as large as all of these together, and
those of intermediate results.
"""

BLOCK = 2**16
"""Bytes of a block of the DuckDB file: a quarter of the default, since most tables are small; that saves a third."""

ALIAS = "dataset"
"""Name of the database while it is written."""


def write_dataset(
    connection: duckdb.DuckDBPyConnection, studies: Sequence[str], folder: Path, *, licence: str | None = None
) -> None:
    """Write the tables of landed studies to an empty folder: Parquet, one file a table, a DuckDB file, and a card.

    The tables are those of ``TABLES`` that have rows; ``connection`` is to these studies alone, unlocked. In
    ``studies``, local paths are reduced to their last names. The card states a ``licence`` by its identifier.
    ``OSError`` if the files cannot be written.
    """
    try:
        _write_files(connection, studies, folder, licence)
    except SPACE_ERRORS as error:
        raise OSError(errno.EIO, " ".join(str(error).partition("\n\n")[0].split())) from error


def _write_files(
    connection: duckdb.DuckDBPyConnection, studies: Sequence[str], folder: Path, licence: str | None
) -> None:
    connection.execute("SET temp_directory = ''")  # tables are copied as streams; nothing is written elsewhere
    place = quote_literal(os.fspath(folder / DATABASE))
    storage = f"STORAGE_VERSION '{READABLE_FROM}', RECOVERY_MODE no_wal_writes, BLOCK_SIZE {BLOCK}"
    connection.execute(f"ATTACH {place} AS {ALIAS} ({storage})")
    connection.register("hosted_studies", _read_studies(connection))
    tables = [name for name in TABLES if _copy_table(connection, name)]
    connection.execute(f"USE {ALIAS}")
    _create_relations(connection, tables)
    for name in tables:
        path = quote_literal(os.fspath(folder / f"{name}.parquet"))
        connection.execute(f"COPY {name} TO {path} (FORMAT parquet, COMPRESSION zstd)")
    connection.execute(f"CHECKPOINT {ALIAS}")
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    card = render_card(connection, studies[0], tables, files, DATABASE, licence)
    (folder / CARD).write_text(card, encoding="utf-8")
    connection.execute("USE memory")
    connection.execute(f"DETACH {ALIAS}")


def _copy_table(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Copy a table or view with its comments, unless it has no rows; return whether it has any."""
    is_view = name in sql.list_names("views")
    source = "hosted_studies" if name == "studies" else f"memory.main.{name}"
    order = " ORDER BY ALL" if is_view else ""  # tables have landed in the order of their keys
    connection.execute(f"CREATE TABLE {ALIAS}.{name} AS FROM {source}{order}")
    if not connection.execute(f"SELECT count(*) FROM {ALIAS}.{name}").fetchall()[0][0]:  # noqa: S608 (of sql/schema)
        connection.execute(f"DROP TABLE {ALIAS}.{name}")
        return False
    connection.execute(f"USE {ALIAS}")
    comment(connection, "TABLE", sql.read_statement("views" if is_view else "schema", name))
    connection.execute("USE memory")
    return True


def _create_relations(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> None:
    """Create the macros and views that read these tables alone, with their comments."""
    for relation in sql.sort_statements("macros", "views"):
        if relation.name not in tables and find_tables_read(relation) <= {*tables}:
            connection.execute(relation.text)
            comment(connection, classify_relation(relation), relation)


def _read_studies(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """The table ``studies`` without the folders of local models and texts."""
    rows = connection.sql("SELECT * REPLACE (provenance::VARCHAR AS provenance) FROM studies").to_arrow_table()
    cleaned = [
        {name: drop_folders(value) for name, value in row.items()}
        | {"provenance": json.dumps(drop_folders(json.loads(row["provenance"])), sort_keys=True)}
        for row in rows.to_pylist()
    ]
    return pa.Table.from_pylist(cleaned, schema=rows.schema)


def drop_folders(value: object) -> object:
    """A value of JSON in which every text that is a local path is only its last name.

    A path that is relative to the current folder without saying so is left, since a hub id looks the same.
    """
    match value:
        case dict():
            return {name: drop_folders(inner) for name, inner in value.items()}
        case list():
            return [drop_folders(inner) for inner in value]
        case str() if value.startswith(("/", "~", "./", "../")):
            return PurePosixPath(value).name or value
        case _:
            return value


QUERIES = ("29_what_heads_look_at", "24_more_than_chance", "28_tokens_that_heads_select")
"""Worked examples that read the tables of every data set."""

TITLE = "Attention heads as geometric classifiers"

_STUDIES = """
FROM studies
SELECT study, model, model_name, weights, corpus_name AS corpus, sequences, context_length, layers, heads
ORDER BY study
"""


def render_card(
    connection: duckdb.DuckDBPyConnection,
    study: str,
    tables: Sequence[str],
    files: Mapping[str, int],
    database: str,
    licence: str | None,
) -> str:
    """The card as Markdown, by ``card.md.j2``, with its metadata as YAML in front.

    Its queries are about ``study``; the hub shows the first of the ``tables``. ``files`` are the sizes in bytes of all
    other files by name, of which ``database`` is the DuckDB file.
    """
    from jinja2 import StrictUndefined, Template  # loading it takes a while

    examples = []
    for example in (sql.read_statement("tour", name) for name in QUERIES):
        text = render_example(example, study)
        result = render_result(query(connection, text).read_all())
        examples.append({"meaning": example.meaning, "text": text, "result": "\n".join(result)})
    source = resources.files(__package__).joinpath("card.md.j2").read_text(encoding="utf-8")
    template = Template(source, trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    card: str = template.render(
        metadata=_render_metadata(tables, licence),
        title=TITLE,
        licence=licence,
        studies="\n".join(render_result(connection.sql(_STUDIES).to_arrow_table())),
        tables=[_describe_table(connection, name) for name in tables],
        files=files,
        database=database,
        size=format_size,
        examples=examples,
    )
    return card


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


def _describe_table(connection: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    """What the card says of a table: its rows, what a row is, its meaning, and its columns as the database has them."""
    described = sql.read_statement("views" if name in sql.list_names("views") else "schema", name)
    about = connection.execute("SELECT comment FROM duckdb_tables() WHERE table_name = ?", [name]).fetchall()[0][0]
    columns = connection.execute(
        "SELECT column_name, lower(data_type), comment FROM duckdb_columns() "
        "WHERE table_name = ? AND database_name = current_database() ORDER BY column_index",
        [name],
    ).fetchall()
    rows = [[f"`{column}`", kind, format_cell(meaning)] for column, kind, meaning in columns]
    return {
        "name": name,
        "rows": connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0],  # noqa: S608 (of sql/schema)
        "grain": format_cell(described.grain.removeprefix("one row per ")),
        "about": format_cell(about[0].upper() + about[1:]),
        "columns": "\n".join(render_table(("column", "type", "meaning"), rows)),
    }


def format_size(size: int) -> str:
    """A number of bytes in kB, or from one megabyte on in MB."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
