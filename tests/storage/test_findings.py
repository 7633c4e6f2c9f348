"""Sentences of what small tables hold."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sql
from storage.warehouse.findings import read_finding


def written(folder: Path, **tables: list[dict[str, object]]) -> dict[str, Path]:
    """Parquet files of these rows."""
    paths = {name: folder / f"{name}.parquet" for name in tables}
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), paths[name])
    return paths


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ((0.6, 0.1), "position 0 gets 35 % of the attention, and more than 30 % in 1 of 2 heads"),
        ((0.1, 0.2), "position 0 gets 15 % of the attention, and more than 30 % in 0 of 2 heads"),
        ((0.01, 0.0166), "position 0 gets 1.33 % of the attention, and more than 30 % in 0 of 2 heads"),
    ],
)
def test_it_says_what_the_last_query_does(tmp_path: Path, weights: tuple[float, float], sentence: str) -> None:
    place = {"layer": 1, "position": 0}
    rows = [place | {"query": 9, "head": head, "mean_weight": weight} for head, weight in enumerate(weights)]
    rows.append(place | {"query": 4, "head": 0, "mean_weight": 1.0})
    rows.append(place | {"query": 9, "head": 0, "position": 1, "mean_weight": 0.9})
    found = read_finding("contributions", written(tmp_path, attention_by_position=rows))
    assert found is not None
    assert found.split(";")[0] == sentence
    assert ("layer 1 head 0: 60 %" in found) == (weights[0] > 0.3)


def test_a_negative_number_has_a_minus_sign(tmp_path: Path) -> None:
    rows = [{"status": "ok", "beta": -0.514}]
    found = read_finding("assumption_similarity", written(tmp_path, assumption_similarity=rows))
    assert found == "cosines of value states decay by β = −0.51 per token in the median KV group"


def test_nothing_is_said_of_what_was_not_measured(tmp_path: Path) -> None:
    assert read_finding("parameter_effects", written(tmp_path, parameter_effects=[{"n": 1}])) is None
    assert read_finding("selection_means", {}) is None
    undefined = [{"status": "undefined", "beta": None}]
    assert read_finding("assumption_similarity", written(tmp_path, assumption_similarity=undefined)) is None
    unseen = pa.Table.from_pylist(
        [{"query": 9, "layer": 0, "head": 0, "position": 0, "mean_weight": None}],
        pa.schema(
            [*((name, pa.int32()) for name in ("query", "layer", "head", "position")), ("mean_weight", pa.float64())]
        ),
    )
    pq.write_table(unseen, tmp_path / "unseen.parquet")
    assert read_finding("contributions", {"attention_by_position": tmp_path / "unseen.parquet"}) is None


def test_studies_one_after_the_other_do_not_see_each_other(tmp_path: Path) -> None:
    """In one process, also in a folder whose name has a quote."""
    sentences = []
    for name, factor in (("one", 0.5), ("the reader's", 2.0)):
        (folder := tmp_path / name).mkdir()
        tables = written(folder, assumption_norms=[{"lambda_sink": factor}], assumption_norms_by_sequence=[{"c": 1.0}])
        sentences.append(read_finding("assumption_norms", tables))
    assert ["0.50" in str(said) for said in sentences] == [True, False]
    assert ["2.00" in str(said) for said in sentences] == [False, True]


def test_every_statement_gives_a_finding() -> None:
    for name in sql.list_names("findings"):
        text = sql.read_statement("findings", name).text
        assert text.count(" AS finding") == 1, name
