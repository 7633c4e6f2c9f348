"""Every named query: it has its header, runs, stays small, and gives what the inserted rows say."""

import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sql
from reports.queries import ask
from tests.reports.conftest import DEGENERATE, SMALL
from tests.reports.synthetic import Synthetic, tables, warehouse

PARAMETERS: dict[str, str | int] = {"study": SMALL.study, "query": SMALL.query, "n": 4, "sequences": 2, "positions": 5}


def parameters_of(name: str) -> dict[str, str | int]:
    code = re.sub(r"--.*", "", sql.statement("queries", name).text)
    return {parameter: PARAMETERS[parameter] for parameter in set(re.findall(r"\$(\w+)", code))}


def frame(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


@pytest.fixture(scope="module")
def inserted() -> dict[str, dict[str, np.ndarray]]:
    return {name: frame(rows) for name, rows in tables(SMALL).items()}


@pytest.mark.parametrize("name", sql.names("queries"))
def test_every_query_has_a_header_and_rows(small: duckdb.DuckDBPyConnection, name: str) -> None:
    statement = sql.statement("queries", name)
    assert statement.grain
    assert statement.inputs
    assert statement.meaning
    assert ask(small, name, **parameters_of(name)).table.num_rows > 0


@pytest.mark.parametrize("name", sql.names("queries"))
def test_queries_see_one_study_only(small: duckdb.DuckDBPyConnection, name: str) -> None:
    other = Synthetic(study="other", layers=5, heads=2, kv_heads=1, context=24, sequences=4, seed=1)
    with warehouse(other, SMALL) as both:
        assert ask(both, name, **parameters_of(name)).rows() == ask(small, name, **parameters_of(name)).rows()


@pytest.mark.parametrize(
    "study", [SMALL, *DEGENERATE.values(), Synthetic("kappas", kappas=(0.1, 2))], ids=lambda study: study.study
)
def test_made_up_studies_are_possible_but_for_their_radii(study: Synthetic) -> None:
    with warehouse(study) as connection:
        for name in set(sql.names("checks")) - {"radii_in_order"}:
            check = sql.statement("checks", name).text
            assert connection.execute(check, {"study": study.study}).fetchall() == [], name


def test_a_parameter_that_is_missing_or_too_many_is_refused(small: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.InvalidInputException):
        ask(small, "study_overview")
    with pytest.raises(duckdb.InvalidInputException):
        ask(small, "study_overview", study="small", n=1)
    with pytest.raises(KeyError, match="no_such_query"):
        ask(small, "no_such_query")


def test_long_contexts_stay_small() -> None:
    """The rows of a chart grow with the logarithm of the context, or stop growing."""
    study = Synthetic("long", layers=1, heads=2, kv_heads=1, context=6000, sequences=1)
    with warehouse(study) as connection:
        curves = ask(connection, "curves_by_n", study="long", query=study.query).table
        weights = ask(connection, "attention_over_heads", study="long", query=study.query).rows()
        norms = ask(connection, "value_norm_over_heads", study="long").rows()
    n = np.unique(curves["n"])
    assert len(n) <= 161
    assert (n[0], n[-1]) == (1, study.query)
    assert curves.num_rows == 4 * len(n)
    assert len(weights) <= 514
    assert len(norms) < 250
    for rows in (weights, norms):
        assert [row["first_position"] for row in rows[1:]] == [row["last_position"] + 1 for row in rows[:-1]]
        assert (rows[0]["last_position"], rows[-1]["last_position"]) == (0, study.query)
    assert weights[-1]["first_position"] == study.query


def test_curves(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    """Mean over sequences, then mean and quantiles over heads, from the counts by hand."""
    counts = inserted["selection_counts"]
    n, k_in, k_out = (counts[name].astype(float) for name in ("n", "k_in", "k_out"))
    precision, recall = n / (n + k_out), k_in / n
    metrics = {
        "precision": precision,
        "recall": recall,
        "f_r_min": 2 * recall / (1 + recall),
        "f_r_max": 2 * precision / (1 + precision),
    }
    rows = ask(small, "curves_by_n", study=SMALL.study, query=SMALL.query).rows()
    assert {row["metric"] for row in rows} == set(metrics)
    for row in rows:
        heads = [
            metrics[row["metric"]][(counts["n"] == row["n"]) & (counts["layer"] == layer) & (counts["head"] == head)]
            for layer in range(SMALL.layers)
            for head in range(SMALL.heads)
        ]
        assert all(len(head) == SMALL.sequences for head in heads)
        means = [head.mean() for head in heads]
        assert row["heads"] == len(means)
        expected = [np.mean(means), np.quantile(means, 0.1), np.quantile(means, 0.9)]
        assert [row["mean"], row["p10"], row["p90"]] == pytest.approx(expected)


def test_heads_at_n(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    counts = inserted["selection_counts"]
    for row in ask(small, "heads_at_n", study=SMALL.study, query=SMALL.query, n=4).rows():
        chosen = (counts["n"] == 4) & (counts["layer"] == row["layer"]) & (counts["head"] == row["head"])
        assert row["sequences"] == chosen.sum() == SMALL.sequences
        assert row["recall"] == pytest.approx((counts["k_in"][chosen] / 4).mean())
        assert row["precision"] == pytest.approx((4 / (4 + counts["k_out"][chosen])).mean())


def test_heads_without_that_n_are_blank_not_absent() -> None:
    study = DEGENERATE["window"]
    with warehouse(study) as connection:
        rows = ask(connection, "heads_at_n", study=study.study, query=study.query, n=5).rows()
    blank = [row["layer"] for row in rows if row["recall"] is None]
    assert len(rows) == study.layers * study.heads
    assert blank == [2] * study.heads


@pytest.mark.parametrize(
    ("query", "table", "quantity", "heads"),
    [
        ("attention_over_heads", "attention_by_position", "mean_weight", SMALL.heads),
        ("value_norm_over_heads", "value_norm_by_position", "mean_norm", SMALL.kv_heads),
    ],
)
def test_by_position(
    small: duckdb.DuckDBPyConnection,
    inserted: dict[str, dict[str, np.ndarray]],
    query: str,
    table: str,
    quantity: str,
    heads: int,
) -> None:
    values = inserted[table][quantity].astype(float).reshape(SMALL.layers * heads, SMALL.context)
    rows = ask(small, query, **parameters_of(query)).rows()
    for row in rows:
        means = values[:, row["first_position"] : row["last_position"] + 1].mean(1)
        expected = [means.mean(), np.quantile(means, 0.1), np.quantile(means, 0.9)]
        assert [row["mean"], row["p10"], row["p90"]] == pytest.approx(expected, rel=1e-6)
    assert sum(row["last_position"] - row["first_position"] + 1 for row in rows) == SMALL.context


def test_sink_by_head(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    shape = (SMALL.layers, SMALL.heads, SMALL.context)
    weights = inserted["attention_by_position"]["mean_weight"].reshape(shape)
    norms = inserted["value_norm_by_position"]["mean_norm"].reshape(SMALL.layers, SMALL.kv_heads, SMALL.context)
    rows = ask(small, "sink_by_head", study=SMALL.study, query=SMALL.query).rows()
    assert len(rows) == SMALL.layers * SMALL.heads
    for row in rows:
        norm = norms[row["layer"], row["head"] // 2]
        assert row["sink_weight"] == pytest.approx(weights[row["layer"], row["head"], 0])
        assert row["uniform_weight"] == pytest.approx(1 / SMALL.context)
        assert row["sink_norm"] == pytest.approx(norm[0])
        assert row["norm_ratio"] == pytest.approx(norm[0] / np.median(norm[1:]), rel=1e-6)


def test_a_hidden_sink_is_null_not_zero() -> None:
    study = DEGENERATE["window"]
    with warehouse(study) as connection:
        rows = ask(connection, "sink_by_head", study=study.study, query=study.query).rows()
    for row in rows:
        assert (row["sink_weight"] is None) == (row["layer"] > 0)
        assert row["uniform_weight"] == pytest.approx(1 / (study.context - study.first_keys[row["layer"]]))
        assert row["sink_norm"] > 0


def test_opening_tokens(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    rows = ask(small, "opening_tokens", study=SMALL.study, sequences=2, positions=5).rows()
    tokens = inserted["tokens"]["token"].reshape(SMALL.sequences, SMALL.context)
    assert [row["token"] for row in rows] == [*tokens[0, :5], *tokens[1, :5]]
