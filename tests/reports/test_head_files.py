"""Measures of heads as files: what the readers of other tools make of them, beside what the tables say."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest

from reports.scores.files import SHARES, Choice, compute_pruned_shares, rank_scores, write
from storage.errors import UserError
from tests.reports.conftest import SMALL
from tests.reports.drawings import changed


def table(connection: duckdb.DuckDBPyConnection, column: str, source: str) -> np.ndarray:
    """A column of a table with a row for every head at the last query, (layers, heads)."""
    rows = connection.sql(
        f"SELECT {column} FROM {source} WHERE study = 'small' AND query = {SMALL.query} ORDER BY layer, head"
    ).fetchall()
    return np.array(rows, np.float64).reshape(SMALL.layers, SMALL.heads)


def read_duo(folder: Path) -> tuple[np.ndarray, int, int]:
    """As its loader does: a table of numbers between tabs, clipped to 0 and 1, and two sizes."""
    heads = np.clip(np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t"), 0, 1)
    config = json.loads((folder / "config.json").read_text())
    return heads, config["sink_size"], config["recent_size"]


@pytest.mark.parametrize("group", ["max", "mean"])
def test_duo_gives_full_attention_to_the_heads_of_the_highest_measure(
    several: duckdb.DuckDBPyConnection, tmp_path: Path, group: str
) -> None:
    choice = Choice("duo", "effective_keys", group, sink_size=64, recent_size=100)  # type: ignore[arg-type]
    written = write(several, "small", choice, tmp_path / "pattern")
    assert {path.name for path in written} == {"full_attention_heads.tsv", "config.json", "made_from.json"}
    heads, sink, recent = read_duo(tmp_path / "pattern")
    assert (sink, recent) == (64, 100)
    assert heads.shape == (3, 2)
    of_query_heads = table(several, "effective_keys", "concentration_means").reshape(3, 2, 2)
    scores = of_query_heads.max(axis=2) if group == "max" else of_query_heads.mean(axis=2)
    for share in (0.2, 0.5, 0.8):  # as its sparsify_attention_heads chooses
        full = heads >= np.quantile(heads, share)
        assert full.sum() in {round((1 - share) * 6), round((1 - share) * 6) + 1}
        assert scores[full].min() > scores[~full].max()
    assert (heads.min(), heads.max()) == (0, 1)


def test_inverted_heads_of_the_lowest_measure_come_first(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for name, inverted in (("plain", False), ("inverted", True)):
        write(several, "small", Choice("duo", "effective_keys", "mean", inverted), tmp_path / name)
    np.testing.assert_allclose(read_duo(tmp_path / "inverted")[0], 1 - read_duo(tmp_path / "plain")[0], atol=1e-8)


def test_ranks_count_equal_heads_half() -> None:
    np.testing.assert_array_equal(rank_scores(np.array([[5.0, 1.0], [5.0, -2.0]])), [[2.5 / 3, 1 / 3], [2.5 / 3, 0]])
    np.testing.assert_array_equal(rank_scores(np.full((2, 2), 7.0)), np.full((2, 2), 0.5))


def test_lukv_prunes_each_share_overall_and_never_less_where_more_is_pruned(
    several: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = tmp_path / "budgets.npy"
    assert write(several, "small", Choice("lukv", "effective_keys", "mean"), path)[0] == path
    curves = np.load(path, allow_pickle=False)
    assert curves.shape == (99, 3, 2)
    assert curves.dtype.kind == "f"
    for index in range(99):  # the loader takes element round(100 * ratio) - 1
        assert curves[index].mean() == pytest.approx((index + 1) / 100, abs=1e-12)
    assert (np.diff(curves, axis=0) >= -1e-12).all()
    assert ((curves >= 0) & (curves <= 1)).all()
    scores = table(several, "effective_keys", "concentration_means").reshape(3, 2, 2).mean(axis=2)
    kept = 1 - curves[98]
    np.testing.assert_allclose(kept / kept.sum(), scores / scores.sum(), rtol=1e-9)


def bisected(scores: np.ndarray, share: float) -> np.ndarray:
    """Shares kept in proportion to scores, at most 1, the scale sought by bisection."""
    low, high = 0.0, 1 / scores.min()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * scores).mean() < 1 - share else (low, middle)
    return 1 - np.minimum(1, low * scores)


@pytest.mark.parametrize("scores", [[[1, 1], [1, 1]], [[1, 2], [300, 4]], [[1e-6, 1], [5, 5]], [[3, 1e9], [2, 7]]])
def test_shares_are_those_of_a_slow_search(scores: list[list[float]]) -> None:
    found = compute_pruned_shares(np.array(scores, np.float64))
    for index, share in enumerate(SHARES):
        np.testing.assert_allclose(found[index], bisected(np.array(scores, np.float64), share), atol=1e-9)


@pytest.mark.parametrize(("measure", "column"), [("effective_keys", "effective_keys"), ("mass", "n_90")])
def test_retrieval_is_one_line_of_scores_by_sequence(
    several: duckdb.DuckDBPyConnection, tmp_path: Path, measure: str, column: str
) -> None:
    path = tmp_path / "scores.json"
    write(several, "small", Choice("retrieval", measure), path)
    with path.open() as file:
        found = json.loads(file.readline())
        assert file.read() == ""
    assert list(found) == [f"{layer}-{head}" for layer in range(3) for head in range(4)]
    for name, scores in found.items():
        layer, head = map(int, name.split("-"))
        rows = several.execute(
            f"SELECT {column} FROM attention_rows WHERE study = 'small' AND layer = ? AND head = ? ORDER BY sequence",
            [layer, head],
        ).fetchall()
        assert scores == [row[0] for row in rows]
        assert len(scores) == SMALL.sequences


def test_recall_by_sequence_is_its_mean_over_ln_n(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write(several, "small", Choice("retrieval", "recall"), tmp_path / "scores.json")
    found = json.loads((tmp_path / "scores.json").read_text())
    rows = several.sql(
        "SELECT n, k_in FROM selection_counts WHERE study = 'small' AND layer = 1 AND head = 2 AND sequence = 1 "
        f"AND query = {SMALL.query}"
    ).fetchall()
    expected = sum(k_in / n / n for n, k_in in rows) / sum(1 / n for n, _ in rows)
    assert found["1-2"][1] == pytest.approx(expected, rel=1e-12)


def test_rows_are_those_of_the_view(several: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for form in ("csv", "parquet", "json"):
        write(several, "small", Choice(form, None), tmp_path / f"all.{form}")  # type: ignore[arg-type]
    whole = pq.read_table(tmp_path / "all.parquet").to_pylist()
    measures = {row["measure"] for row in whole}
    assert {"recall", "elbow", "margin", "effective_keys", "rho_0", "delta_loss_zero", "kl_sink"} <= measures
    assert len(whole) == len(measures) * 12
    assert json.loads((tmp_path / "all.json").read_text()) == whole
    assert len(pcsv.read_csv(tmp_path / "all.csv")) == len(whole)
    (ends,) = several.sql(
        "SELECT delta_loss, delta_loss_low, delta_loss_high FROM head_ablation "
        "WHERE study = 'small' AND layer = 1 AND head = 3 AND kind = 'zero'"
    ).fetchall()
    (ablated,) = (row for row in whole if (row["layer"], row["head"], row["measure"]) == (1, 3, "delta_loss_zero"))
    assert (ablated["value"], ablated["low"], ablated["high"]) == ends
    beside = json.loads((tmp_path / "all.csv.made_from.json").read_text(encoding="utf-8"))
    assert (beside["study"], beside["model"], beside["query"]) == ("small", "embedded", SMALL.query)
    assert beside["versions"] == {"torch": "2.13.0", "device": "cpu"}
    own = {name: ablated[name] for name in ("layer", "head", "measure", "value", "low", "high")}
    assert own in beside["intervals"]


OF_LAYERS = [
    ("DELETE FROM heads WHERE layer = 1", "layer 1 of 'small' has no softmax attention"),
    ("DELETE FROM heads WHERE layer = 2 AND kv_head = 1", "layer 2 of 'small' has 1 head, and others 2"),
]
"""What leaves layers that a table cannot hold."""
ABLATED = r"no measure 'delta_loss_zero' \(heads are ablated only if .* `effects`\)"


@pytest.mark.parametrize(
    ("study", "change", "choice", "said"),
    [
        ("nothing", "", Choice("csv", None), "holds nothing of the study 'nothing'; run it first"),
        ("small", "", Choice("duo", None), "holds one measure; name it with --by"),
        ("small", "", Choice("duo", "beauty"), "has no measure 'beauty'; it has "),
        ("small", "", Choice("lukv", "delta_loss_zero"), r"is -.* for a head, but .* need values above 0; choose"),
        ("small", "DELETE FROM head_ablation WHERE true", Choice("duo", "delta_loss_zero"), ABLATED),
        ("three", "", Choice("duo", "sink_share"), r"'sink_share' does not exist for 6 of 18 heads"),
        ("least", "", Choice("duo", "effective_keys"), "cannot read a pattern with one layer or one KV head per layer"),
        *(
            ("small", change, Choice(form, "effective_keys"), said)  # type: ignore[arg-type]
            for change, said in OF_LAYERS
            for form in ("duo", "lukv")
        ),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    several: duckdb.DuckDBPyConnection, tmp_path: Path, study: str, change: str, choice: Choice, said: str
) -> None:
    changes = [f"{change} AND study = '{study}'"] if change else []
    with changed(several, *changes), pytest.raises(UserError, match=said) as caught:
        write(several, study, choice, tmp_path / "x")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
