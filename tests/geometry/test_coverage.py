"""How often intervals cover and verdicts are wrong, by simulation, and what the page on statistics says of it."""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage import (
    DRAWS,
    LEVELS,
    STATISTICS,
    Rate,
    measure_coverage,
    measure_layers,
    measure_random_weights,
    measure_verdicts,
)
from dagster_project.analysis.claims import judging
from geometry.statistics import intervals

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")

Key = tuple[str, str, int]  # What was measured, of which draws, and the number of sequences


def read_page() -> dict[Key, float]:
    """The shares in the tables of the page."""
    found, sequences = {}, [0]
    for line in PAGE.splitlines():
        what, draws, *cells = [cell.strip() for cell in line.strip("|").split("|")] if line.count("|") > 3 else ["", ""]
        if cells and (cells[0].startswith("S = ") or cells[0].endswith(" layers")):
            sequences = [int(re.sub(r"\D", "", cell)) for cell in cells]
        elif cells and cells[0].startswith("share"):
            sequences = [8]
        elif cells and cells[0].endswith("%"):
            shares = (float(cell.removesuffix(" %")) / 100 for cell in cells)
            found |= {(what, draws, count): share for count, share in zip(sequences, shares, strict=True)}
    return found


def key(rates: Iterator[Rate]) -> dict[Key, Rate]:
    return {(rate.what, rate.draws, rate.sequences): rate for rate in rates}


def assert_told(rates: dict[Key, Rate], trials: int) -> None:
    """The page says what is measured here, within five standard errors of both."""
    page = read_page()
    for name, rate in rates.items():
        share = (rate.share * rate.trials + page[name] * trials + 1) / (rate.trials + trials + 2)
        error = np.sqrt(share * (1 - share) * (1 / rate.trials + 1 / trials))
        assert abs(rate.share - page[name]) < 5 * error + 0.0005, f"{name}: {rate.share}, the page says {page[name]}"


@pytest.mark.long
def test_intervals_cover_as_often_as_the_page_says() -> None:
    trials = 150
    rates = key(measure_coverage(trials=trials, seed=1))
    assert len(rates) == len(STATISTICS) * len(DRAWS) * 4
    assert_told(rates, trials=2000)
    for what in ("mean", "ratio of means", "association within layers"):
        for count in (4, 8, 16, 64):
            assert abs(rates[what, "normal", count].share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize(("level", "enough"), [(0.95, True), (0.9, False)])
def test_coverage_is_that_of_the_level(level: float, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of means of four normal numbers; with the control that shorter intervals are noticed."""
    right = intervals.student_quantile
    monkeypatch.setattr(intervals, "student_quantile", lambda sequences: right(sequences, level))
    (rate,) = islice(measure_coverage(trials=2000, sequences=(4,)), 1)
    assert bool(abs(rate.share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)) is enough


@pytest.mark.slow
def test_pages_are_wrong_as_rarely_as_the_rule_says() -> None:
    """At most 5 % of pages support a claim falsely and 7.5 % have a wrong verdict, in the worst case."""
    rates = key(measure_verdicts(pages=40, seed=1))
    of_claims = {name for name in rates if not name[0].startswith("pages")}
    assert_told({name: rate for name, rate in rates.items() if name not in of_claims or name[1] != "bounded"}, 1000)
    for draws in ("normal", "bounded"):
        for count in (8, 16, 24):
            for what, most in (("pages with a false support", 0.05), ("pages with a wrong verdict", 0.075)):
                assert rates[what, draws, count].share <= most + 3 * np.sqrt(most / 40), (what, draws, count)


def test_pages_without_a_correction_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {rate.what: rate.share for rate in islice(measure_verdicts(pages=40), 2)}
    assert rates["pages with a wrong verdict"] < 0.25
    monkeypatch.setattr(judging, "correct_holm", list)
    rates = {rate.what: rate.share for rate in islice(measure_verdicts(pages=40), 2)}
    assert rates["pages with a wrong verdict"] > 0.4


@pytest.mark.slow
def test_changes_over_layers_are_found_as_often_as_the_page_says() -> None:
    rates = key(measure_layers(profiles=30, layers=(12, 30), seed=1))
    assert_told(rates, trials=200)
    for count in (12, 30):
        assert rates["no change", "layers in random order", count].share <= 0.05 + 3 * np.sqrt(0.05 / 30)
        assert rates["no change", "the interval alone", count].share > 0.9


@pytest.mark.long
def test_random_weights_have_no_association_within_layers() -> None:
    rates = {rate.what: rate for rate in measure_random_weights(models=60, seed=1000)}
    within, over_all = (
        np.mean([rates[f"ρ_0 and {name} {way}"].share for name in LEVELS])
        for way in ("within layers", "over all heads")
    )
    assert within <= 0.08
    assert over_all > 0.5  # the control: what depth does to the usual test
