"""Lower bounds in SQL, and coverage and comparison of their means, against a literal reading of the paper."""

from itertools import product
from typing import Any

import duckdb
import numpy as np
import pytest

from geometry.bounds.lower import INGREDIENTS
from tests.geometry.printed_bounds import bound_selection
from tests.sql.hand_made import MEANS, Row, break_statement, database, insert, rows_of

KAPPAS = (0.02, 0.5, 8.0)
N_KEYS = 9
HEADS = 6
HEAD_DIM = 16
UNBOUNDED = ("specificity", "precision_excess", "norm_s", "cos_", "relative_")
"""Means without bounds, which the comparison leaves out."""
BOUNDS = ("precision_lower", "recall_lower", "f_r_max_lower", "f_r_min_lower")


def ingredients(rng: np.random.Generator, n: int, head: int) -> Row:
    """Possible ingredients of one selection, as float32; even heads see the sink, head 4 has weights near underflow."""
    in_j = n - (head % 2 == 0)
    least = np.float32(rng.uniform(0.2, 1)) * np.float32(1e-25 if head == 4 else 1)
    spread = np.float32(rng.uniform(1, 1.5))
    row = {
        "a_0": float(np.float32(rng.uniform(0.1, 4)) * least) if head % 2 == 0 else None,
        "s_in": float(np.float32(least * (1 + spread * (in_j - 1)))) if in_j else None,
        "a_min_in": float(least) if in_j else None,
        "a_max_in": float(np.float32(least * spread)) if in_j else None,
        "a_max_out": float(np.float32(least * np.float32(rng.uniform(0, 1)))),
        "rho_out": float(np.float32(rng.choice([0, 0.05, 0.3, 0.9]))) if in_j else None,
    }
    if head == 5 and n == 3:
        row |= dict.fromkeys(INGREDIENTS[1:], 0.0)
    return row


def study() -> dict[str, list[Row]]:
    """Three sequences of six heads; KV head 1 (heads 3 to 5) has value states of norm 0 in sequence 2."""
    rng = np.random.default_rng(0)
    selections = []
    for sequence, head, n in product(range(3), range(HEADS), range(1, N_KEYS)):
        where = {"sequence": sequence, "query": 8, "layer": 0, "head": head, "n": n}
        lengths = dict.fromkeys(("r_min", "r_max", "norm_s", "norm_s_without_last", "distance_rest"), 1.0)
        counts = {"n_keys": N_KEYS, "k_in": 1, "k_out": int(rng.integers(0, N_KEYS - n + 1)), "weight_left_out": 0.0}
        selections.append(where | counts | lengths | ingredients(rng, n, head))
    heads = [{"layer": 0, "head": head, "kv_head": head // 3, "head_dim": HEAD_DIM} for head in range(HEADS)]
    scales = [
        {"sequence": number, "query": 8, "layer": 0, "kv_head": kv_head, "value_scale": scale_of(number, 3 * kv_head)}
        for number, kv_head in product(range(3), range(2))
    ]
    means = [
        MEANS | {"query": 8, "layer": 0, "head": head, "n": n, "precision": rng.uniform(0.1, 1), "recall": rng.random()}
        for head, n in product(range(HEADS), range(1, N_KEYS))
    ]
    printed = [
        mean_bounds(selections, head, n, kappa, rng.uniform(0.5, 1))
        for head, n, kappa in product(range(HEADS), range(1, N_KEYS), KAPPAS)
    ]
    free = [
        {"query": 8, "layer": 0, "head": head, "n": n, "family": "scale_free"}
        | dict.fromkeys(BOUNDS, None if n == 2 else 0.25 / n)
        for head, n in product(range(HEADS), range(1, N_KEYS))
    ]
    return {
        "selection_counts": selections,
        "bound_means": printed + free,
        "heads": heads,
        "value_scales": scales,
        "selection_means": means,
        "selection_means_model": [MEANS | {"query": 8, "n": n, "heads": HEADS} for n in range(1, N_KEYS)],
    }


def scale_of(sequence: int, head: int) -> float | None:
    """C of a sequence and head; a float32."""
    return (0.5, 2.0, (1.0, 0.0)[head // 3])[sequence]


def literal(row: Row, kappa: float, scale: str, value_scale: float | None) -> dict[str, float]:
    """The bounds of a selection; nothing where there is none."""
    given = {"n": row["n"], "keys": row["n_keys"], "d": HEAD_DIM, "kappa": kappa}
    return bound_selection(row, 1.0 if scale == "raw" else value_scale, **given)


def mean_of(numbers: list[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def mean_bounds(selections: list[Row], head: int, n: int, kappa: float, upper: float = 1.0, scale: str = "unit") -> Row:
    """A row of ``bound_means`` of the printed family; there is an upper bound where there are lower ones."""
    rows = [row for row in selections if key(row, "head", "n") == (head, n)]
    known = [bounds for row in rows if (bounds := literal(row, kappa, scale, scale_of(row["sequence"], head)))]
    means = {name: mean_of([bounds[name] for bounds in known]) for name in ("margin", "premise_share", *BOUNDS)}
    uppers = {f"{metric}_upper": upper if known else None for metric in ("precision", "recall", "f_r_max", "f_r_min")}
    where = {"query": 8, "layer": 0, "head": head, "n": n, "family": "printed", "kappa": kappa, "scale": scale}
    return where | means | uppers


def key(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def same(found: Any, expected: Any) -> None:
    """Equal to rounding, the rounding of float64 alone, however small."""
    if expected is None:
        assert found is None
    else:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-300)


def compare_lower_bounds(connection: duckdb.DuckDBPyConnection) -> None:
    given = {key(row, "sequence", "head", "n"): row for row in study()["selection_counts"]}
    for kappa, scale in product(KAPPAS, ("unit", "raw")):
        found = rows_of(connection, f"lower_bounds({kappa}, '{scale}')")
        assert len(found) == len(given)
        for row in found:
            asked = given[key(row, "sequence", "head", "n")]
            expected = literal(asked, kappa, scale, scale_of(row["sequence"], row["head"]))
            for name in BOUNDS:
                same(row[name], expected.get(name))
            if expected:
                same(row["delta"], expected["delta"])
                same(row["margin"], expected["margin"])


def compare_bounds_at(connection: duckdb.DuckDBPyConnection) -> None:
    selections = study()["selection_counts"]
    means = {key(row, "head", "n"): row for row in rows_of(connection, "selection_means")}
    for kappa, scale in ((0.02, "unit"), (8.0, "raw")):
        found = rows_of(connection, f"bounds_at({kappa}, scale := '{scale}')")
        assert len(found) == len(means)
        for row in found:
            mean = means[key(row, "head", "n")]
            bounds = mean_bounds(selections, row["head"], row["n"], kappa, scale=scale)
            for name in ("margin", "premise_share", *BOUNDS):
                same(row[name], bounds[name])
            for metric in ("precision", "recall", "f_r_max", "f_r_min"):
                lower = bounds[f"{metric}_lower"]
                assert row[metric] == mean[metric]
                assert row[f"{metric}_holds"] == (None if lower is None else mean[metric] >= lower - 1e-6)


def test_lower_bounds_and_their_means_are_those_of_the_paper() -> None:
    with database(**study()) as connection:
        compare_lower_bounds(connection)
        compare_bounds_at(connection)


def test_the_study_has_every_case() -> None:
    """Or the comparison would compare little."""
    found = [literal(row, 0.5, "raw", None) for row in study()["selection_counts"]]
    known = [bounds for bounds in found if bounds]
    assert 0 < len(known) < len(found)
    assert {bounds["delta"] > 0 for bounds in known} == {True, False}
    assert any(0 < bounds["recall_lower"] < 1 for bounds in known)
    assert any(bounds["recall_lower"] == 0 for bounds in known)


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("margins", "- 2 *", "-"),
        ("margins", "a_min_in::DOUBLE AS", "(a_min_in * a_min_in)::FLOAT AS"),
        ("margins", "+ s_in::DOUBLE", ""),
        ("margins", "nullif(a_max_in", "nullif(1e-30 + a_max_in"),
        ("margins", "- overlap * overlap", "- s_in * overlap"),
        ("margins", "value_scale, --", "1 AS value_scale, --"),
        ("lower_bounds", "(margin + abs(margin)) / 2", "margin"),
        ("lower_bounds", "* head_dim", ""),
        ("lower_bounds", ", 0) / n)", ", 0))"),
        ("lower_bounds", "(n_keys - n)", "n_keys"),
        ("lower_bounds", "(1 + precision_lower)", "(2 + precision_lower)"),
        ("lower_bounds", "nullif(value_scale::DOUBLE, 0)", "1::DOUBLE"),
        ("lower_bounds", "nullif(value_scale::DOUBLE, 0)", "value_scale::DOUBLE"),
        ("lower_bounds", "delta / (unit * unit)", "delta / unit"),
        ("lower_bounds", "CASE WHEN missed IS NOT NULL THEN greatest(1 - missed, 0) END", "greatest(1 - missed, 0)"),
        ("bounds_at", "avg(COLUMNS('margin|_lower'))", "max(COLUMNS('margin|_lower'))"),
        ("bounds_at", "precision >= precision_lower", "precision <= precision_lower"),
    ],
)
def test_the_comparison_notices_another_formula(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    break_statement(monkeypatch, name, old, new)
    with pytest.raises(AssertionError), database(**study()) as connection:
        (compare_bounds_at if name == "bounds_at" else compare_lower_bounds)(connection)


def literal_inside(row: Row, metric: str) -> bool | None:
    lower, upper, mean = row[f"{metric}_lower"], row[f"{metric}_upper"], row[metric]
    if row["family"] == "scale_free":
        return None if lower is None else mean >= lower
    return None if lower is None or upper is None else lower <= mean <= upper


def test_the_comparison_shows_every_head_and_n_and_what_lies_outside() -> None:
    with database(**study()) as connection:
        found = rows_of(connection, "bounds_comparison")
        means = {key(row, "head", "n"): row for row in rows_of(connection, "selection_means")}
        bounds = {key(row, "head", "n", "family", "kappa"): row for row in rows_of(connection, "bound_means")}
    assert len(found) == len(bounds)
    for row in found:
        both = means[key(row, "head", "n")] | bounds[key(row, "head", "n", "family", "kappa")]
        assert both.keys() - row.keys() == {name for name in both if name.startswith(UNBOUNDED)}
        assert row == row | {name: both[name] for name in both if name in row}
        for metric in ("precision", "recall", "f_r_max", "f_r_min"):
            assert row[f"{metric}_inside"] == literal_inside(row, metric)
    assert {row["precision_inside"] for row in found} == {True, False, None}


def test_rounding_of_a_stored_bound_is_not_outside() -> None:
    with database() as connection:
        assert connection.execute(
            "SELECT inside('printed', 0.5, 0.5 + 9e-7, 1), inside('printed', 0.5, 0.5 + 2e-6, 1), "
            "inside('printed', 0.5, 0.1, 0.5 - 9e-7), inside('printed', 0.5, 0.1, 0.5 - 2e-6), "
            "inside('printed', 0.5, 0.1, NULL), inside('scale_free', 0.5, 0.1, NULL)"
        ).fetchall() == [(True, False, True, False, None, True)]


def test_the_models_bounds_are_means_over_heads() -> None:
    with database(**study()) as connection:
        by_head = rows_of(connection, "bound_means")
        found = rows_of(connection, "bounds_comparison_model")
    assert len(found) == (N_KEYS - 1) * (len(KAPPAS) + 1)
    for row in found:
        heads = [other for other in by_head if key(other, "n", "family", "kappa") == key(row, "n", "family", "kappa")]
        known = [other for other in heads if other["precision_lower"] is not None]
        assert (row["heads"], row["bounded_heads"]) == (HEADS, len(known))
        for name in ("premise_share", "margin", "recall_lower", "f_r_max_upper"):
            same(row[name], mean_of([other[name] for other in heads if other[name] is not None]))
        assert row["recall_inside"] == literal_inside(row, "recall")


def test_coverage_counts_rows_with_bounds() -> None:
    with database(**study()) as connection:
        rows = rows_of(connection, "bounds_comparison")
        found = rows_of(connection, "coverage")
    assert len(found) == len(KAPPAS) + 1
    for row in found:
        chosen = [
            other
            for other in rows
            if key(other, "family", "kappa") == key(row, "family", "kappa") and other["precision_inside"] is not None
        ]
        further = [other for other in chosen if other["n"] > 1]
        premise = [other for other in further if (other["premise_share"] or 0) > 0.5]
        assert (row["rows"], row["premise_rows"]) == (len(chosen), len(premise))
        for metric in ("precision", "recall"):
            same(row[f"{metric}_coverage"], mean_of([other[f"{metric}_inside"] for other in chosen]))
            same(row[f"{metric}_coverage_premise"], mean_of([other[f"{metric}_inside"] for other in premise]))
            widths = [other[f"{metric}_upper"] - other[f"{metric}_lower"] for other in chosen if other["kappa"]]
            same(row[f"{metric}_width"], mean_of(widths))
        same(row["premise_share"], mean_of([other["premise_share"] for other in further if other["kappa"]]))


def envelope(kappa: float, lower: float, upper: float, n: int) -> Row:
    bounds = {
        f"{metric}_{end}": value
        for metric in ("precision", "recall", "f_r_max", "f_r_min")
        for end, value in (("lower", lower), ("upper", upper))
    }
    return bounds | {
        "query": 8, "layer": 0, "head": 0, "n": n, "family": "printed", "kappa": kappa, "scale": "unit",
        "premise_share": 1.0, "margin": 0.1,
    }  # fmt: skip


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("envelopes", "best"),
    [
        ({0.1: (0, 1), 1: (0.3, 0.7), 10: (0.6, 0.7)}, 1),  # two cover, one is narrower
        ({0.1: (0.6, 0.9), 1: (0.6, 0.8), 10: (0.49, 0.51)}, 10),  # one covers
        ({0.1: (0.6, 0.9), 1: (0.6, 0.8)}, 0.1),  # none covers, both as badly
        ({0.1: (0, 1), 1: (0, 1)}, 0.1),  # both serve as well
    ],
)
def test_the_kappa_that_serves_best(envelopes: dict[float, tuple[float, float]], best: float) -> None:
    assert serving(envelopes, rows=100) == ([best], [best])


@pytest.mark.parametrize("without", [{"rows": 99}, {"rows": 100, "premise_share": 0.5}])
def test_no_kappa_serves_best_where_few_rows_carry_the_premise(without: dict[str, float]) -> None:
    envelopes = {0.1: (0, 1), 1: (0.3, 0.7), 10: (0.6, 0.7), 20: (0.45, 0.55)}
    assert serving(envelopes, **without) == ([], [1])  # the middle one is shown, of two the lower


def serving(
    envelopes: dict[float, tuple[float, float]], *, rows: int, premise_share: float = 1.0
) -> tuple[list[float], list[float]]:
    """The κ that serves best, and the one that is shown, where so many rows beyond N = 1 have these envelopes."""
    sizes = range(1, rows + 2)
    means = [MEANS | {"query": 8, "layer": 0, "head": 0, "n": n} for n in sizes]
    bounds = [envelope(kappa, *ends, n) for kappa, ends in envelopes.items() for n in sizes]
    with database(selection_means=means) as connection:
        insert(connection, "bound_means", [row | {"premise_share": premise_share} for row in bounds])
        best, shown = (
            connection.execute(f"SELECT kappa FROM coverage WHERE {which}").fetchall()
            for which in ("serves_best", "shown")
        )
    return [kappa for (kappa,) in best], [kappa for (kappa,) in shown]
