"""Every named query: it has its header, runs, stays small, and gives what the inserted rows say."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sql
from reports.assumptions.findings import describe_attention
from reports.findings.numbers import Row
from reports.queries import ask, find_queries, read_query
from storage.warehouse.documentation import list_examples, render_example
from storage.warehouse.query import query as query_warehouse
from tests.made_up import tables, warehouse
from tests.reports.conftest import DEGENERATE, LONG, SEVERAL, SMALL, SYNTHETIC, THREE
from tests.reports.drawings import changed, of_shown

PARAMETERS: dict[str, str | float | None] = {
    "study": SMALL.study,
    "query": SMALL.query,
    "n": 4,
    "kappa": 0.5,
    "sequences": 2,
    "positions": 5,
    "family": "steps",
    "quantity": "sink_weight",
    "most": 100,
    "heads": 3,
    "places": "0.0,1.1",
    "layer": 1,
    "head": 3,
    "measure": "recall",
}
SPECIFIC: dict[str, dict[str, str | float | None]] = {"separability_at_n": {"measure": "auc"}}
"""What single queries are asked instead."""
OF_STUDIES = [name for name in find_queries() if not name.startswith("family_")]
"""The queries about studies; those about families are in ``tests/dagster_project/test_family_tables.py``."""


def parameters_of(name: str) -> dict[str, str | float | None]:
    code = re.sub(r"--.*", "", read_query(name).text)
    values = PARAMETERS | SPECIFIC.get(name, {})
    return {parameter: values[parameter] for parameter in set(re.findall(r"\$(\w+)", code))}


def frame(table: pa.Table) -> dict[str, np.ndarray]:
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


@pytest.fixture(scope="module")
def inserted() -> dict[str, dict[str, np.ndarray]]:
    return {name: frame(rows) for name, rows in tables(SMALL).items()}


@pytest.mark.parametrize("name", OF_STUDIES)
def test_queries_have_rows_of_one_study_only(
    small: duckdb.DuckDBPyConnection, several: duckdb.DuckDBPyConnection, name: str
) -> None:
    rows = ask(small, name, **parameters_of(name)).rows()
    none = {"facts", "label_changes", "planted_recovery", "reader_examples"}
    none |= {"last_query_beside_all", "places_of_queries"}  # no query of the study sees 32 keys
    assert (rows == []) == (name in none)
    if name != "studies_overview":
        assert ask(several, name, **parameters_of(name)).rows() == rows


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["least", "one sequence", "hidden sink", "only itself"])
def test_every_query_and_example_answers_for_every_study(name: str) -> None:
    study = DEGENERATE[name]
    with warehouse(study) as connection:
        for query in find_queries():
            parameters = parameters_of(query)
            given = {"study": study.study, "query": study.query} | {"layer": 0, "head": 0}
            ask(connection, query, **{key: given.get(key, value) for key, value in parameters.items()})
        for example in list_examples():
            query_warehouse(connection, render_example(example, name)).read_all()


def test_the_rows_of_a_view_need_no_query(small: duckdb.DuckDBPyConnection) -> None:
    """They are those of the study, in order of the key."""
    answer = ask(small, "coverage", study=SMALL.study, query=SMALL.query)
    assert answer.sql == (
        f"SELECT * EXCLUDE (study, query)\nFROM coverage\nWHERE study = 'small' AND query = {SMALL.query}\n"
        "ORDER BY family, kappa"
    )
    assert answer.rows() == small.sql(answer.sql).to_arrow_table().to_pylist() != []
    assert ask(small, "elbows_model", study="small", query=SMALL.query).sql.endswith(f"query = {SMALL.query}")
    assert not ask(small, "coverage", study="other", query=SMALL.query).rows()


@pytest.mark.slow
def test_long_contexts_stay_small(long: duckdb.DuckDBPyConnection) -> None:
    """The rows of a chart grow with the logarithm of the context, or stop growing."""
    asked = {"study": "long", "query": LONG.query}
    curves, weights, fitted = (
        ask(long, name, **asked).rows() for name in ("curves_by_n", "attention_over_heads", "weights_fit_curve")
    )
    norms, cosines = (ask(long, name, study="long").rows() for name in ("value_norm_over_heads", "similarity_curves"))
    n = sorted({row["n"] for row in curves})
    assert (n[0], n[-1], len(curves)) == (1, LONG.query, 4 * len(n))
    assert sorted(row["n"] for row in of_shown(long, LONG, "bounds_by_n")) == sorted(8 * n)
    assert max(len(n), len(cosines) / 4, len(weights) / 3.2, len(norms) / 1.5) <= 161
    assert max(row["distance"] for row in cosines) == LONG.context - 2
    runs, of_fit, of_norms = (
        [(row["first_position"], row["last_position"]) for row in rows] for rows in (weights, fitted, norms)
    )
    assert runs == of_fit
    for found in (runs, of_norms):
        assert [first for first, _ in found] == [0, *(last + 1 for _, last in found[:-1])]
        assert (found[0][1], found[-1][1]) == (0, LONG.query)
    assert runs[-1][0] == LONG.query
    assert 20 <= len(of_shown(long, LONG, "explorer_curves")[0]["n"]) <= 24
    assert ask(long, "diagnostics_of_head", layer=0, head=1, **asked).table.num_rows <= 161


def test_windows_begin_where_their_heads_see_keys_and_not_where_runs_of_positions_do() -> None:
    """A window of 512 tokens begins at 512 for query 1,023; in a run with 511, which other heads see."""
    with closing(duckdb.connect()) as connection:
        connection.execute(sql.read_statement("macros", "run_of").text)
        connection.execute(
            """
            CREATE TABLE attention_by_position AS
            SELECT 's' AS study, 1023 AS query, 0 AS layer, head, position, 1 / (1024 - 512 * head) AS mean_weight
            FROM range(2) AS heads (head), range(1024) AS keys (position)
            WHERE position >= 512 * head
            """
        )
        rows = ask(connection, "attention_over_heads", study="s", query=1023).rows()
    assert "Sliding windows begin at position 512:" in describe_attention(rows, 1023)
    of_runs = [row | {"seen_from": row["first_position"]} for row in rows]
    assert "Sliding windows begin at position 511:" in describe_attention(of_runs, 1023)


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


@pytest.mark.parametrize(
    ("query", "table", "quantity", "heads"),
    [
        ("attention_over_heads", "attention_by_position", "mean_weight", SMALL.heads),
        ("value_norm_over_heads", "values_by_position", "mean_norm", SMALL.kv_heads),
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
    norms = inserted["values_by_position"]["mean_norm"].reshape(SMALL.layers, SMALL.kv_heads, SMALL.context)
    rows = ask(small, "sink_by_head", study=SMALL.study, query=SMALL.query).rows()
    assert len(rows) == SMALL.layers * SMALL.heads
    for row in rows:
        norm = norms[row["layer"], row["head"] // 2]
        assert row["sink_weight"] == pytest.approx(weights[row["layer"], row["head"], 0])
        assert row["uniform_weight"] == pytest.approx(1 / SMALL.context)
        assert row["sink_norm"] == pytest.approx(norm[0])
        assert row["norm_ratio"] == pytest.approx(norm[0] / np.median(norm[1:]), rel=1e-6)


def test_what_a_window_hides_is_null_not_zero_nor_absent(three: duckdb.DuckDBPyConnection) -> None:
    rows = ask(three, "heads_at_n", study="three", query=23, n=16).rows()
    assert [row["layer"] for row in rows if row["recall"] is None] == [2] * THREE.heads
    assert len(rows) == THREE.layers * THREE.heads
    for row in ask(three, "sink_by_head", study="three", query=23).rows():
        assert (row["sink_weight"] is None) == (row["layer"] == 2)
        assert row["uniform_weight"] == pytest.approx(1 / (THREE.context - THREE.first_keys[row["layer"]]))
        assert row["sink_norm"] > 0
    rows = ask(three, "directions_of_head", study="three", query=23, layer=2, head=0).rows()
    assert [row["position"] for row in rows] == list(range(THREE.context))
    for row in rows:
        assert (row["mean_weight"] is None) == (row["selected_rank"] is None) == (row["position"] < 10)


def test_similarity_curves(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    measured, every = inserted["cosine_by_distance"], inserted["assumption_similarity"]
    fits = {name: column[~np.isnan(every["mae"]) & ~np.isnan(every["layer"])] for name, column in every.items()}
    order = np.lexsort((fits["kv_head"], fits["layer"], fits["mae"]))
    chosen = {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}
    rows = ask(small, "similarity_curves", study=SMALL.study).rows()
    assert {row["which"] for row in rows} == {*chosen, "model"}
    for row in rows:
        at = measured["distance"] == row["distance"]
        if row["which"] == "model":
            assert (row["layer"], row["kv_head"]) == (None, None)
            assert row["mean_cosine"] == pytest.approx(measured["mean_cosine"][at].mean())
            continue
        fit = {name: column[chosen[row["which"]]] for name, column in fits.items()}
        assert (row["layer"], row["kv_head"]) == (fit["layer"], fit["kv_head"])
        at &= (measured["layer"] == fit["layer"]) & (measured["kv_head"] == fit["kv_head"])
        assert [row["mean_cosine"]] == pytest.approx(measured["mean_cosine"][at])
        assert row["exponential"] == pytest.approx(np.exp(-fit["beta"] * row["distance"]))
        decay = np.exp(-fit["beta_floor"] * row["distance"])
        assert row["with_floor"] == pytest.approx(fit["floor"] + (1 - fit["floor"]) * decay)


def test_decay_goes_to_its_floor_at_once_where_it_is_unbounded(small: duckdb.DuckDBPyConnection) -> None:
    asked = "SELECT decay(2, 'ok', 0.5, 0.25), decay(2, 'unbounded', NULL, 0.25), decay(2, 'undefined', NULL, NULL)"
    assert small.execute(asked).fetchall() == [(pytest.approx(0.25 + 0.75 * np.exp(-1)), 0.25, None)]


def phase(position: int, fit: dict[str, float]) -> float:
    """Assumption 3, word by word."""
    if position == 0:
        return fit["p_sink"]
    if position <= fit["t_1"]:
        return fit["p_base"]
    if position <= fit["t_2"]:
        return fit["p_base"] * (1 + fit["eta"] * np.cos(fit["omega"] * position))
    return fit["p_base"] * np.exp(fit["eta_growth"] * (position - fit["t_2"]))


def test_fitted_weights(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    (fit,) = ask(small, "assumption_weights_model", study=SMALL.study, query=SMALL.query).rows()
    assert 0 < fit["t_1"] <= fit["t_2"] < SMALL.query
    weights = inserted["attention_by_position"]["mean_weight"].astype(float).reshape(-1, SMALL.context).mean(0)
    rows = ask(small, "weights_fit_curve", study=SMALL.study, query=SMALL.query).rows()
    for position, row in enumerate(rows):
        assert (row["first_position"], row["last_position"]) == (position, position)
        assert row["mean"] == pytest.approx(weights[position])
        assert row["fitted"] == pytest.approx(phase(position, fit))


def test_bounds_at_the_best_kappa(three: duckdb.DuckDBPyConnection) -> None:
    best = "SELECT kappa FROM coverage WHERE shown AND query = 23 AND family = bounds_comparison_model.family"
    expected = three.sql(
        f"SELECT * FROM bounds_comparison_model WHERE query = 23 AND kappa IS NOT DISTINCT FROM ({best})"
    ).to_arrow_table()
    rows = of_shown(three, THREE, "bounds_by_n")
    by_key = {(row["family"], row["n"]): row for row in expected.to_pylist()}
    assert len(rows) == 4 * len(by_key) == 4 * 2 * (THREE.context - 1)
    for row in rows:
        wanted, metric = by_key[row["family"], row["n"]], row["metric"]
        assert row["mean"] == wanted[metric]
        names = ("low", "high", "lower", "upper", "inside")
        assert [row[name] for name in names] == [wanted[f"{metric}_{name}"] for name in names]


def test_regimes(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    of_model = ask(small, "regimes_of_model", study=SMALL.study, query=SMALL.query).rows()
    assert [row["regime"] for row in of_model] == ["I", "II", "III", "IV", "V"]
    found = inserted["regimes_by_sequence"]
    for row in of_model:  # medians over the heads and sequences that have the regime
        starts = sorted(found["first_n"][found["regime"] == row["regime"]])
        assert row["first_n"] == (starts[(len(starts) - 1) // 2] if starts else None)
    assert [row["paper_trend"] for row in of_model] == [None, 1, -1, -1, -1]
    assert [row["trend"] for row in of_model] == [row["slope"] and np.sign(row["slope"]) for row in of_model]
    of_query = f"study = '{SMALL.study}' AND query = {SMALL.query}"
    by_head = small.sql(f"FROM selection_regimes WHERE {of_query}").to_arrow_table().to_pylist()
    counts = ask(small, "regime_counts", study=SMALL.study, query=SMALL.query).rows()
    assert [row["regime"] for row in counts] == sorted({row["regime"] for row in by_head})
    for row in counts:
        heads = [other for other in by_head if other["regime"] == row["regime"]]
        assert row["heads"] == len(heads)
        assert row["falling"] == sum((other["slope"] or 0) < 0 for other in heads)
        assert row["mostly_positive"] == sum((other["positive_share"] or 0) > 0.5 for other in heads)


def test_monte_carlo(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    grid = inserted["monte_carlo"]
    for row in ask(small, "monte_carlo_summary", study=SMALL.study).rows():
        at = of_bounds(grid, row)
        met = at & grid["meets_assumptions"].astype(bool)
        assert (row["points"], row["points_meeting"]) == (at.sum(), met.sum())
        for name in INEQUALITIES:
            same_share(row, name, grid, at)
            same_share(row, name, grid, met, "_meeting")
            share = name if name.endswith("_upper") else f"{name}_lower"
            for found, measured, take in (
                (f"{share}_share",) * 2 + (np.mean,),
                (f"worst_{name}_gap", f"{name}_gap", np.min),
            ):
                values = grid[measured][at].astype(float)
                known = values[~np.isnan(values)]
                assert row[found] == (pytest.approx(take(known)) if known.size else None)


def of_bounds(grid: dict[str, np.ndarray], row: Row) -> np.ndarray:
    """Which rows of a grid have the family, κ and scale of this one."""
    found: np.ndarray = np.all([(grid[name] == row[name]) | (row[name] is None) for name in KINDS_OF_BOUNDS], axis=0)
    return found


KINDS_OF_BOUNDS = ("family", "kappa", "scale")
INEQUALITIES = ("precision", "recall", "precision_upper", "recall_upper")


def same_share(row: Row, name: str, grid: dict[str, np.ndarray], at: np.ndarray, which: str = "") -> None:
    """Points without the bound count neither for nor against it."""
    holds = np.array([value for value in grid[f"{name}_holds"][at] if value is not None], float)
    assert row[f"{name}_points{which}"] == holds.size
    assert row[f"{name}_holds{which}"] == (pytest.approx(holds.mean()) if holds.size else None)


def test_failures_are_told_once_for_each_bound(
    small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]
) -> None:
    grid = inserted["monte_carlo"]
    rows = ask(small, "monte_carlo_failures", study=SMALL.study).rows()
    assert [row["gap"] for row in rows] == sorted(row["gap"] for row in rows)
    assert len({(row["inequality"], row["family"], row["kappa"], row["scale"]) for row in rows}) == len(rows)
    assert sum(row["failing"] for row in rows) == sum(
        np.equal(grid[f"{name}_holds"], False).sum() for name in INEQUALITIES
    )
    for row in rows:
        name = row["inequality"].removesuffix("_lower")
        at = of_bounds(grid, row)
        fails = at & np.equal(grid[f"{name}_holds"], False)
        met = grid["meets_assumptions"].astype(bool)
        assert (row["failing"], row["failing_meeting"]) == (fails.sum(), (fails & met).sum())
        bounded = at & np.not_equal(grid[f"{name}_holds"], None)
        assert (row["points"], row["points_meeting"]) == (bounded.sum(), (bounded & met).sum())
        assert row["gap"] == pytest.approx(grid[f"{name}_gap"][fails].min())
        sign = -1 if name.endswith("upper") else 1
        assert row["gap"] == pytest.approx(sign * (row["mean"] - row["bound"]))
        where = at & np.all([grid[key] == row[key] for key in ("head_dim", "n_keys", "n", "beta")], axis=0)
        assert grid[f"{name}_gap"][where] == pytest.approx(row["gap"])


@pytest.mark.slow
def test_planted_recovery() -> None:
    sources = {
        "C": ("c, c_low, c_high", "assumption_norms"),
        "beta": ("CASE preferred WHEN 'floor' THEN beta_floor ELSE beta END", "assumption_similarity"),
        "p_sink": ("p_sink", "assumption_weights JOIN heads USING (study, layer, head)"),
    }
    pairs, heads = SYNTHETIC.layers * SYNTHETIC.kv_heads, SYNTHETIC.layers * SYNTHETIC.heads
    names = ["C", "lambda", "beta", "rho_0", "p_sink", "p_base", "eta", "eta_growth", "omega", "T_1", "T_2"]
    with warehouse(SYNTHETIC) as connection:
        rows = ask(connection, "planted_recovery", study="synthetic", query=SYNTHETIC.query).rows()
        for row in rows:
            if row["fitted"] is not None:
                assert row["difference"] == pytest.approx(row["fitted"] - row["planted"])
            if row["parameter"] in sources:
                columns, table = sources[row["parameter"]]
                place = f"layer = {row['layer']} AND kv_head = {row['kv_head']}"
                place += "" if row["head"] is None else f" AND head = {row['head']} AND query = {SYNTHETIC.query}"
                (found,) = connection.sql(f"SELECT {columns} FROM {table} WHERE {place}").fetchall()
                assert found == (row["fitted"], row["low"], row["high"])[: len(found)]
    assert [row["parameter"] for row in rows] == [
        name for name in names for _ in range(pairs if name in names[:4] else heads)
    ]


@pytest.fixture(scope="module")
def three() -> Iterator[duckdb.DuckDBPyConnection]:
    """A warehouse with the study of three queries, whose heads are of every kind, only read."""
    with warehouse(THREE) as connection:
        connection.execute(EVERY_KIND)
        yield connection


EVERY_KIND = (
    "UPDATE head_taxonomy SET label = ['Retriever', 'Mixer', 'Reset', 'Other'][1 + (head + layer + query // 6) % 4]"
)


def only(connection: duckdb.DuckDBPyConnection, position: int) -> None:
    """Forget all queries but one."""
    for table in sql.list_names("schema"):
        if "query" in connection.table(table).columns:
            connection.execute(f"DELETE FROM {table} WHERE query <> {position}")


@pytest.fixture(scope="module")
def alone() -> Iterator[dict[int, duckdb.DuckDBPyConnection]]:
    """Warehouses with one query each of that study, by its position."""
    with warehouse(THREE) as middle, warehouse(THREE) as last:
        found = {11: middle, 23: last}
        for position, connection in found.items():
            connection.execute(EVERY_KIND)
            only(connection, position)
        yield found


@pytest.mark.parametrize(
    "name", [name for name in find_queries() if "query" in parameters_of(name) and name != "planted_recovery"]
)
def test_a_question_about_one_query_hears_nothing_of_others(
    three: duckdb.DuckDBPyConnection, alone: dict[int, duckdb.DuckDBPyConnection], name: str
) -> None:
    asked = parameters_of(name) | {"study": "three"}
    for position in (11, 23) if name != "separation_curves" else (23,):  # which the last query alone has
        here, there = (ask(one, name, **asked | {"query": position}).rows() for one in (three, alone[position]))
        assert here == there != []


@pytest.mark.parametrize("name", ["claims", "results_at_a_glance", "studies_overview", "study_overview"])
def test_a_question_about_the_study_is_about_its_last_query(
    three: duckdb.DuckDBPyConnection, alone: dict[int, duckdb.DuckDBPyConnection], name: str
) -> None:
    asked = {} if name == "studies_overview" else {"study": "three"}
    found, expected = (ask(connection, name, **asked).rows() for connection in (three, alone[23]))
    assert found[0].pop("queries", [5, 11, 23]) == [5, 11, 23]
    assert expected[0].pop("queries", [23]) == [23]
    assert found == expected


def of_heads(connection: duckdb.DuckDBPyConnection, query: int) -> list[Row]:
    return ask(connection, "head_taxonomy", study="three", query=query).rows()


LABELS = ("Retriever", "Mixer", "Reset", "Other")


def test_kinds_are_counted_layer_by_layer_and_query_by_query(three: duckdb.DuckDBPyConnection) -> None:
    labels = {query: [head["label"] for head in of_heads(three, query)] for query in THREE.positions}
    in_layers = Counter((head["layer"], head["label"]) for head in of_heads(three, 23))
    rows = ask(three, "taxonomy_by_layer", study="three", query=23).rows()
    assert [(row["layer"], row["label"], row["heads"]) for row in rows] == [
        (layer, label, in_layers[layer, label]) for layer in range(3) for label in LABELS
    ]
    by_query = ask(three, "labels_by_query", study="three").rows()
    assert [(row["query"], row["n_keys"], row["label"], row["heads"]) for row in by_query] == [
        (query, query + 1, label, labels[query].count(label)) for query in THREE.positions for label in LABELS
    ]
    for some, heads in ((rows, THREE.heads), (by_query, len(labels[5]))):
        assert [row["share"] for row in some] == pytest.approx([row["heads"] / heads for row in some])
    changes = ask(three, "label_changes", study="three").rows()
    moved = [sum(map(str.__ne__, labels[one], labels[other])) for one, other in ((5, 11), (11, 23))]
    assert [(row["query"], row["n_keys"], row["next_query"], row["changed"]) for row in changes] == [
        (5, 6, 11, moved[0]),
        (11, 12, 23, moved[1]),
    ]
    assert any(moved)


def test_diagnostics_of_a_head(small: duckdb.DuckDBPyConnection, inserted: dict[str, dict[str, np.ndarray]]) -> None:
    counts = inserted["selection_counts"]
    of_head = (counts["layer"] == 1) & (counts["head"] == 3)
    rows = ask(small, "diagnostics_of_head", study="small", query=SMALL.query, layer=1, head=3).rows()
    assert [row["n"] for row in rows] == list(range(1, SMALL.context))
    for row in rows:
        at = of_head & (counts["n"] == row["n"])
        assert row["sequences"] == at.sum() == SMALL.sequences
        for name in ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last"):
            assert row[name] == pytest.approx(counts[name][at].astype(float).mean())


@pytest.fixture(scope="module")
def long() -> Iterator[duckdb.DuckDBPyConnection]:
    """A long study of two queries, of whose positions charts show a part."""
    with warehouse(LONG) as connection:
        yield connection


def test_contexts_of_every_query_are_whole_classes(small: duckdb.DuckDBPyConnection) -> None:
    """Of 24 keys no query sees 32, so that 16 is the largest class; slopes are NumPy's."""
    stored = small.sql("FROM context_heads ORDER BY ALL").to_arrow_table().to_pylist()
    of_head: dict[tuple[int, ...], dict[tuple[int, int], dict[str, float]]] = {}
    for row in stored:
        of_head.setdefault((row["layer"], row["head"], row["sequence"]), {})[row["context"], row["n"]] = row
    curves = ask(small, "context_curves", study="small").rows()
    assert {(row["n_keys"], row["n"]) for row in curves} == {(2, 1), (4, 1), (4, 2), (8, 1), (8, 2), (8, 4)} | {
        (16, n) for n in (1, 2, 4, 8)
    }
    for row in curves:
        place = row["n_keys"], row["n"]
        of_heads = [rows[place][row["metric"]] for key, rows in of_head.items() if key[2] == row["sequence"]]
        assert (row["query"], row["heads"]) == (row["n_keys"] - 1, len(of_heads))
        assert row["value"] == pytest.approx(np.mean(of_heads), abs=1e-9)
    slopes = ask(small, "context_slopes", study="small", n=2).rows()
    assert len(slopes) == 2 * len(of_head)
    for row in slopes:
        rows = of_head[row["layer"], row["head"], row["sequence"]]
        assert (row["first_context"], row["last_context"]) == (8, 16)
        low, high = (rows[8, 2], rows[16, 2] if row["kept"] == "number" else rows[16, 4])
        for metric in ("precision", "recall", "specificity"):
            assert row[metric] == pytest.approx(high[metric] - low[metric], abs=1e-9)
    assert ask(small, "context_slopes", study="small", n=4).rows() == slopes[len(of_head) :]


def test_the_last_query_stands_beside_all_that_see_32_keys(small: duckdb.DuckDBPyConnection) -> None:
    """As if 20 keys more were seen: from the 12th on."""
    of_heads = "'small', 0, {}, 'recall_level', 4, 0.5, 0.4, 0.6, 0.1, {}, {}"
    with changed(
        small,
        "UPDATE query_heads SET n_keys = n_keys + 20",
        f"INSERT INTO query_means VALUES ({of_heads.format(0, -0.1, 0.3)}), ({of_heads.format(1, 0.05, 0.2)})",
    ):
        rows = {row["measure"]: row for row in ask(small, "last_query_beside_all", study="small").rows()}
    stored = small.sql("FROM query_heads ORDER BY sequence, layer, head, query").to_arrow_table().to_pylist()
    assert {*rows} == {*stored[0]} - {"study", "sequence", "query", "layer", "head", "n_keys"} - {
        "top_position",
        "top_positions",
        "top_weights",
    }
    levels = np.reshape([row["recall_level"] for row in stored], (4, 12, 23)).astype(float)
    last, every = levels[..., -1].mean(axis=1), levels[..., 10:].mean(axis=2).mean(axis=1)
    found = rows["recall_level"]
    for name, values in {"last": last, "every": every, "difference": last - every}.items():
        error = values.std(ddof=1) / 2
        assert [found[name], found[f"{name}_error"]] == pytest.approx([values.mean(), error], rel=1e-6)
    needed = max(2, math.ceil(4 * every.var() / last.var()))
    assert [found[name] for name in ("sequences", "sequences_needed", "heads", "heads_apart")] == [4, needed, 2, 1]


def test_places_are_compared_at_the_same_position(small: duckdb.DuckDBPyConnection) -> None:
    """As if 20 keys more were seen: from the 12th on. A sequence without tokens of a place says nothing of it."""
    texts = ["\n", ",", "c1.", ".", *(f"word{number}" for number in range(12))]
    chosen = np.random.default_rng(3).integers(0, len(texts), (4, 24))
    listed = ", ".join(f"({s}, {p}, {k}, '{texts[k]}')" for (s, p), k in np.ndenumerate(chosen))
    with changed(
        small,
        "UPDATE query_heads SET n_keys = n_keys + 20",
        f"UPDATE tokens SET token_id = k, token = t FROM (VALUES {listed}) AS made(s, p, k, t) "
        "WHERE sequence = s AND position = p",
    ):
        rows = {(row["place"], row["measure"]): row for row in ask(small, "places_of_queries", study="small").rows()}
    stored = small.sql("FROM query_heads ORDER BY sequence, layer, head, query").to_arrow_table().to_pylist()
    levels = np.reshape([row["recall_level"] for row in stored], (4, 12, 23)).astype(float).mean(axis=1)[:, 10:]
    others = np.stack([np.delete(levels, sequence, axis=0).mean(axis=0) for sequence in range(4)])
    places = {
        "repeated": [[token in line[:at] for at, token in enumerate(line)] for line in chosen.tolist()],
        "line_start": np.pad(chosen[:, :-1] == 0, ((0, 0), (1, 0))),
        "punctuation": np.isin(chosen, [1, 3]),
    }
    assert {place for place, _ in rows} == {*places}
    for place, marked in places.items():
        inside, found = np.array(marked)[:, 11:], rows[place, "recall_level"]
        lines = zip(levels - others, inside, strict=True)
        apart = [line[its].mean() - line[~its].mean() for line, its in lines if its.any() and not its.all()]
        error = np.std(apart, ddof=1) / math.sqrt(len(apart))
        values = [found[name] for name in ("difference", "difference_error", "share")]
        assert values == pytest.approx([np.mean(apart), error, inside.mean()], rel=1e-6)
        assert found["sequences"] == len(apart) > 1


BOUNDS_OF_HEAD = """
    WITH comparison AS (
        FROM bounds_comparison
        WHERE
            study = $study AND query = $query AND layer = $layer AND head = $head
            AND (
                family = 'scale_free'
                OR kappa = (SELECT kappa FROM coverage WHERE study = $study AND query = $query AND shown)
            )
    )
    FROM by_metric(comparison)
"""


def test_the_curves_of_every_head_are_lists_of_equal_length(three: duckdb.DuckDBPyConnection) -> None:
    rows = of_shown(three, THREE, "explorer_curves")
    assert [(row["layer"], row["head"]) for row in rows] == [(layer, head) for layer in range(3) for head in range(6)]
    for row in rows:
        lists = {name: values for name, values in row.items() if name not in {"layer", "head"}}
        assert {len(values) for values in lists.values()} == {len(row["n"])}
        assert row["n"] == sorted({*row["n"]})
        assert (row["n"][0], row["n"][-1]) == (1, 13 if row["layer"] == 2 else 23)
        of_head = {"study": "three", "query": 23, "layer": row["layer"], "head": row["head"]}
        bounds = {
            (bound["metric"], bound["family"], bound["n"]): bound
            for bound in three.sql(BOUNDS_OF_HEAD, params=of_head).to_arrow_table().to_pylist()
        }
        vectors = {vector["n"]: vector for vector in ask(three, "diagnostics_of_head", **of_head).rows()}
        for index, n in enumerate(row["n"]):
            at = {name: values[index] for name, values in lists.items()}
            for metric in ("precision", "recall"):
                printed, free = bounds[metric, "printed", n], bounds[metric, "scale_free", n]
                assert [at[metric], at[f"{metric}_lower"], at[f"{metric}_upper"], at[f"{metric}_scale_free"]] == [
                    printed["mean"],
                    printed["lower"],
                    printed["upper"],
                    free["lower"],
                ]
            names = ("norm_s", "norm_s_without_sink", "norm_s_without_last", "cos_sink", "cos_last")
            assert [at[name] for name in names] == [vectors[n][name] for name in names]


def test_what_a_study_lacks_is_null_in_the_index(several: duckdb.DuckDBPyConnection) -> None:
    """Numbers of the others are compared on the page."""
    rows = {row["study"]: row for row in ask(several, "studies_overview").rows()}
    assert list(rows) == sorted(study.study for study in SEVERAL)
    unknown = {name for name, value in rows["empty"].items() if value is None}
    kinds = {"retriever_share", "mixer_share", "reset_share", "other_share"}
    separation = {"precision", "recall", "shown_n", "sink_weight", "sinks", "sink_layers", "twin"}
    assert unknown == {"model_elbow_n", "claims_beyond_twin"} | kinds | separation
    assert (rows["empty"]["claims_judged"], rows["empty"]["claims_supported"]) == (0, 0)


def test_the_map_of_heads_has_the_rows_of_its_tables(three: duckdb.DuckDBPyConnection) -> None:
    found = ask(three, "head_map", study="three", query=23).rows()
    places = three.sql(
        "SELECT layer, head, x, y FROM head_plane WHERE study = 'three' AND curve IS NULL ORDER BY ALL"
    ).fetchall()
    assert [(row["layer"], row["head"], row["x"], row["y"]) for row in found] == places
    assert len(found) == 18
    for row in found:
        head = f"study = 'three' AND layer = {row['layer']} AND head = {row['head']}"
        own = f"SELECT DISTINCT label FROM head_taxonomy WHERE query = 23 AND {head}"
        moved = f"SELECT DISTINCT label FROM kinds_moved WHERE query = 23 AND {head}"
        labels = {label for statement in (own, moved) for (label,) in three.sql(statement).fetchall()}
        assert (set(row["reached"]), row["kept"]) == (labels, len(labels) == 1)
        asked = f"SELECT label FROM head_labels WHERE {head} ORDER BY lift DESC, label"
        assert row["patterns"] == [label for (label,) in three.sql(asked).fetchall()]
        assert row["delta_loss"] is not None
    assert {row["kept"] for row in found} == {True, False}
    with changed(three, "DELETE FROM head_pattern_means"):
        without = ask(three, "head_map", study="three", query=23).rows()
    assert {row["patterns"] is None for row in without} == {True}
