"""Table 2 against its definition word by word, on heads of every shape."""

import math
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from geometry.assumptions import regimes
from geometry.assumptions.regimes import REGIMES, classify_keys, find_regimes

Row = dict[str, Any]

SHAPES = 40
Q = 19  # Position of the query
HEIGHTS = {"sink": 9.0, "tail": 5.0, "peak": 3.0, "valley": 0.5, "plateau": 1.0}


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
        weight = 0.01 * weight + [HEIGHTS[class_of(fit, int(position))] for position in positions]
    return fit, {int(position): float(np.float32(w)) for position, w in zip(positions, weight, strict=True)}


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
    lengths = {n: length_over_ln(n, start, max(inside)) for n in known}
    positive = sum(lengths[n] for n in known if known[n] > 0) / sum(lengths.values()) if known else None
    return {
        "margin_first": inside[start],
        "margin_last": inside[max(inside)],
        "slope": slope,
        "positive_share": positive,
    }


def length_over_ln(n: int, first: int, last: int) -> float:
    """Length over ln N of what is nearer to N than to the other N of a range."""
    left = math.log(first - 0.5) if n == first else math.log(math.sqrt(n * (n - 1)))
    right = math.log(last + 0.5) if n == last else math.log(math.sqrt(n * (n + 1)))
    return right - left


def margins_of(index: int, keys: int) -> dict[int, float | None]:
    rng = np.random.default_rng([index, 1])
    return {n: None if rng.random() < 0.1 else float(rng.normal()) for n in range(1, keys)}


def found_of(index: int) -> list[Row]:
    """The regimes of one head, as rows."""
    fit, weights = head_of(index)
    positions, margins = sorted(weights), margins_of(index, len(weights))
    wave = {name: math.nan if fit[name] is None else fit[name] for name in ("eta", "omega")}
    classes = classify_keys(positions, t_1=fit["t_1"], t_2=fit["t_2"], **wave)
    alpha = np.array([weights[position] for position in positions])
    known = np.array([math.nan if margins[n] is None else margins[n] for n in range(1, len(weights))])
    found = find_regimes(alpha[None], classes[None], known[None])
    columns = {name: column[0].tolist() for name, column in vars(found).items()}
    return [
        {"regime": regime, **{name: values[place] for name, values in columns.items()}}
        for place, regime in enumerate(REGIMES)
        if columns["first_n"][place]
    ]


SEVERAL = [index for index in range(SHAPES) if len(head_of(index)[1]) > 1]  # Heads that attend to two keys or more


def compare() -> dict[str, int]:
    """Hold all heads against the literal reading; how many have each regime."""
    counts = dict.fromkeys(REGIMES, 0)
    for index in SEVERAL:
        fit, weights = head_of(index)
        expected = literal(fit, weights, margins_of(index, len(weights)))
        found = found_of(index)
        assert [row["regime"] for row in found] == [row["regime"] for row in expected]
        for row, wanted in zip(found, expected, strict=True):
            counts[row["regime"]] += 1
            for name, value in wanted.items():
                exact = math.nan if value is None else value
                assert row[name] == (exact if name == "regime" else pytest.approx(exact, abs=1e-9, nan_ok=True)), name
    return counts


def test_regimes_are_those_of_table_2() -> None:
    counts = compare()
    assert counts["I"] == len(SEVERAL)
    assert all(0 < counts[regime] < len(SEVERAL) for regime in REGIMES[1:]), counts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("np.argsort(-alpha", "np.argsort(-alpha[:, ::-1]"),
        ("x <= t_1", "x < t_1"),
        ("eta * np.cos(omega * x) > 0", "np.cos(omega * x) > 0"),
        ("peaks.argmax(axis=1) + 1, first_low)", "peaks.argmax(axis=1) + 1, n)"),
        ("m_2 = np.maximum(m_1, first_low)", "m_2 = first_low"),
        ("(ordered == VALLEY) | (ordered == PLATEAU)", "ordered == PLATEAU"),
        ("_slopes(np.log(n),", "_slopes(1.0 * n,"),
        ("np.where(known, margins, 0.0) > 0", "np.where(known, margins, 0.0) >= -0.1"),
        ("np.where(n == low, np.log(n - 0.5),", "np.where(n == low, np.log(n),"),
        ("& ~np.isnan(margins)", "& (np.nan_to_num(margins) != 9)"),
    ],
)
def test_the_comparison_notices_another_definition(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    source = Path(regimes.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    broken = ModuleType("broken")
    monkeypatch.setitem(sys.modules, "broken", broken)
    exec(compile(source.replace(old, new), "broken", "exec"), vars(broken))
    for name in ("find_regimes", "classify_keys"):
        monkeypatch.setitem(globals(), name, getattr(broken, name))
    with pytest.raises((AssertionError, IndexError)):
        compare()
