"""Table 2 in SQL against its definition word by word, on heads of every shape."""

import math
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.sql.hand_made import Row, break_statement, database, rows_of

SHAPES = 60
Q = 19
"""Position of the query."""


def head_of(index: int) -> tuple[Row, dict[int, float]]:
    """A fit and the weights by position: windows, ties, no oscillation, no plateau, peaks of either sign."""
    rng = np.random.default_rng(index)
    first = int(rng.choice([0, 0, 5, Q]))
    t_1 = int(rng.integers(0, Q + 1))
    t_2 = int(rng.choice([t_1, rng.integers(t_1, Q + 1), Q]))
    oscillates = t_2 > t_1
    fit = {
        "eta": float(rng.uniform(-0.9, 0.9)) if oscillates else None,
        "omega": float(rng.uniform(0.2, math.pi)) if oscillates else None,
        "t_1": t_1,
        "t_2": t_2,
    }
    positions = np.arange(first, Q + 1)
    weight = rng.choice([0.0, 0.25, 0.5, 1.0], positions.size)
    if rng.random() < 0.5:  # so that regimes come in the paper's order
        weight = np.array([0.01 * weight[i] + weight_of(fit, int(position)) for i, position in enumerate(positions)])
    return fit, {int(position): float(np.float32(w)) for position, w in zip(positions, weight, strict=True)}


def weight_of(fit: Row, position: int) -> float:
    return {"sink": 9.0, "tail": 5.0, "peak": 3.0, "valley": 0.5, "plateau": 1.0}[class_of(fit, position)]


def class_of(fit: Row, position: int) -> str:
    if position == 0:
        return "sink"
    if position <= fit["t_1"]:
        return "plateau"
    if position > fit["t_2"]:
        return "tail"
    return "peak" if fit["eta"] * math.cos(fit["omega"] * position) > 0 else "valley"


def first_n(sets: list[set[int]], holds: Any) -> int | None:
    """The first N whose set holds, N from 1."""
    return next((n for n, chosen in enumerate(sets, 1) if holds(chosen)), None)


def literal(fit: Row, weights: dict[int, float], margins: dict[int, float | None]) -> list[Row]:
    """Regimes of one head, from the sets I_N themselves."""
    order = sorted(weights, key=lambda position: (-weights[position], position))
    sets = [set(order[:n]) for n in range(1, len(order) + 1)]
    classes = {position: class_of(fit, position) for position in weights}
    off_plateau = {position for position in weights if classes[position] != "plateau"}
    peak = first_n(sets, lambda chosen: any(classes[i] == "peak" for i in chosen))
    low = first_n(sets, lambda chosen: any(classes[i] in {"valley", "plateau"} for i in chosen))
    m_1 = max(2, peak or low or len(order))
    m_2 = max(m_1, low or len(order))
    m_3 = max(m_2, first_n(sets, lambda chosen: off_plateau <= chosen) or 1)
    starts = [1, 2, m_1, m_2, m_3, len(order)]
    return [
        {"regime": regime, "first_n": start, "last_n": min(end, len(order)) - 1} | trend(margins, start, end)
        for regime, (start, end) in zip(("I", "II", "III", "IV", "V"), pairwise(starts), strict=True)
        if start < min(end, len(order))
    ]


def trend(margins: dict[int, float | None], start: int, end: int) -> Row:
    inside = {n: margin for n, margin in margins.items() if start <= n < end}
    known = {n: margin for n, margin in inside.items() if margin is not None}
    slope = np.polyfit(np.log(list(known)), list(known.values()), 1)[0] if len(known) > 1 else None
    positive = sum(margin > 0 for margin in known.values()) / len(known) if known else None
    return {
        "margin_first": inside[start],
        "margin_last": inside[max(inside)],
        "slope": slope,
        "positive_share": positive,
    }


def margins_of(index: int, keys: int) -> dict[int, float | None]:
    rng = np.random.default_rng([index, 1])
    return {n: None if rng.random() < 0.1 else float(rng.normal()) for n in range(1, keys)}


def study() -> dict[str, list[Row]]:
    """The fit and the weights of every head."""
    fits, weights = [], []
    for index in range(SHAPES):
        fit, by_position = head_of(index)
        where = {"query": Q, "layer": 0, "head": index, "sequences": 2}
        fits.append(where | fit | {"status": "ok", "positions": 9, "zero_positions": 0})
        weights += [
            where | {"position": position, "mean_weight": weight, "sd_weight": 0.0}
            for position, weight in by_position.items()
        ]
    return {"assumption_weights": fits, "attention_by_position": weights}


def bound_rows() -> list[Row]:
    return [
        {
            "query": Q, "layer": 0, "head": index, "n": n, "family": "printed", "kappa": kappa, "scale": "unit",
            "margin": margin,
        }
        for index in range(SHAPES)
        for kappa in (0.5, 2.0)
        for n, margin in margins_of(index, len(head_of(index)[1])).items()
    ]  # fmt: skip


def compare(connection: duckdb.DuckDBPyConnection) -> None:
    found = rows_of(connection, "selection_regimes")
    for index in range(SHAPES):
        fit, weights = head_of(index)
        expected = literal(fit, weights, margins_of(index, len(weights)))
        of_head = sorted((row for row in found if row["head"] == index), key=lambda row: row["first_n"])
        assert [row["regime"] for row in of_head] == [row["regime"] for row in expected]
        for row, wanted in zip(of_head, expected, strict=True):
            for name, value in wanted.items():
                assert row[name] == (value if value is None else pytest.approx(value, abs=1e-9)), name


def test_regimes_are_those_of_table_2() -> None:
    with database(**study(), bound_means=bound_rows()) as connection:
        compare(connection)
        found = rows_of(connection, "selection_regimes")
    counts = {regime: sum(row["regime"] == regime for row in found) for regime in ("I", "II", "III", "IV", "V")}
    assert all(0 < count < SHAPES for count in counts.values()), counts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ORDER BY weight DESC, position", "ORDER BY weight DESC, position DESC"),
        ("position <= t_1", "position < t_1"),
        ("position > t_2", "position >= t_2"),
        ("eta * cos(omega * position) > 0", "cos(omega * position) > 0"),
        ("greatest(2, coalesce(first_peak, first_low, n_keys))", "greatest(2, coalesce(first_peak, n_keys))"),
        ("greatest(m_1, coalesce(first_low, n_keys))", "coalesce(first_low, n_keys)"),
        ("greatest(m_2, last_high)", "greatest(m_2, last_high - 1)"),
        ("class IN ('valley', 'plateau')", "class = 'plateau'"),
        ("WHERE n_keys > 1", ""),
        ("regr_slope(margin, ln(n) ORDER BY n)", "regr_slope(margin, n)"),
        ("WHEN count(margin) > 1", "WHEN true"),
        ("any_value(margin) FILTER (WHERE n = first_n)", "arg_min(margin, n)"),
        ("(margin > 0)", "(margin >= -0.1)"),
    ],
)
def test_the_comparison_notices_another_definition(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    break_statement(monkeypatch, "selection_regimes_of", old, new)
    with pytest.raises(AssertionError), database(**study(), bound_means=bound_rows()) as connection:
        compare(connection)


def test_a_head_without_a_fit_has_no_regimes() -> None:
    tables = study()
    tables["assumption_weights"][4] |= {"status": "no_weight", "t_1": None, "t_2": None, "eta": None, "omega": None}
    with database(**tables) as connection:
        heads = {row["head"] for row in rows_of(connection, "selection_regimes")}
        assert rows_of(connection, "selection_regimes_model") == []
    several_keys = {index for index in range(SHAPES) if len(head_of(index)[1]) > 1}
    assert 4 in several_keys
    assert heads == several_keys - {4}


def test_without_bounds_regimes_have_no_margins() -> None:
    with database(**study()) as connection:
        found = rows_of(connection, "selection_regimes")
    assert {row["margin_first"] for row in found} == {row["positive_share"] for row in found} == {None}


def test_the_models_regimes_are_those_of_its_mean_weight_and_mean_margin() -> None:
    seen: dict[int, list[float]] = {}
    margins: dict[int, list[float]] = {}
    for index in range(SHAPES):
        weights = head_of(index)[1]
        for position, weight in weights.items():
            seen.setdefault(position, []).append(weight)
        for n, margin in margins_of(index, len(weights)).items():
            margins.setdefault(n, []).extend([] if margin is None else [margin])
    fit = {"eta": -0.5, "omega": 1.0, "t_1": 4, "t_2": 12}
    model = {"query": Q, "heads": SHAPES, "sequences": 2, "status": "ok", "positions": 19, "zero_positions": 0} | fit
    with database(**study(), bound_means=bound_rows(), assumption_weights_model=[model]) as connection:
        found = rows_of(connection, "selection_regimes_model")
    means = {position: float(np.mean(weights)) for position, weights in seen.items()}
    expected = literal(fit, means, {n: float(np.mean(of_n)) for n, of_n in margins.items()})
    assert len(expected) > 2
    for row, wanted in zip(sorted(found, key=lambda row: row["first_n"]), expected, strict=True):
        assert {name: row[name] for name in wanted} == pytest.approx(wanted)
