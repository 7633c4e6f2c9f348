"""What heads look at, from the table by sequence to labels: the numbers by hand, and heads whose labels are known."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from statistics import fmean, stdev

import duckdb
import pytest
from scipy import stats

from geometry.quantities import PATTERNS
from tests.made_up import SMALL, MadeUp, warehouse
from tests.reports.conftest import TWIN

TRAINED = replace(SMALL, study="trained")
PREVIOUS = {(layer, 0) for layer in range(TRAINED.layers)}
"""The heads that are made to look at the token before."""


@pytest.fixture(scope="module")
def both() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(TRAINED, TWIN) as connection:
        yield connection


def read_labels(connection: duckdb.DuckDBPyConnection, study: str, given: str = "head_labels") -> dict[str, set]:
    """The heads of each label."""
    rows = connection.execute(
        f"SELECT label, layer, head FROM {given} WHERE study = ? ORDER BY label", [study]
    ).fetchall()
    return {label: {place[1:] for place in places} for label, places in groupby(rows, lambda row: row[0])}


def test_means_and_intervals_are_those_of_the_sequences(both: duckdb.DuckDBPyConnection) -> None:
    for name in PATTERNS:
        (of_head,) = both.execute(
            f"SELECT list({name}) FILTER ({name} IS NOT NULL), avg({name}) / avg({name}_chance) AS lift "
            "FROM head_patterns WHERE study = 'trained' AND layer = 1 AND head = 0"
        ).fetchall()
        found = both.execute(
            "SELECT share, share_low, share_high, lift, sequences FROM head_pattern_means "
            "WHERE study = 'trained' AND layer = 1 AND head = 0 AND pattern = ?",
            [name],
        ).fetchone()
        numbers, lift = of_head
        if name == "sink_unmatched" and len(numbers or ()) < 2:
            continue  # few tokens, all of which have occurred before
        reach = stats.t.ppf(0.975, len(numbers) - 1) * stdev(numbers) / len(numbers) ** 0.5
        ends = max(0, fmean(numbers) - reach), min(1, fmean(numbers) + reach)
        assert found == pytest.approx((fmean(numbers), *ends, lift, len(numbers)))


def test_heads_have_the_labels_they_were_made_for(both: duckdb.DuckDBPyConnection) -> None:
    every = {(layer, head) for layer in range(TRAINED.layers) for head in range(TRAINED.heads)}
    found = read_labels(both, "trained")
    assert found == {"previous": PREVIOUS, "local": PREVIOUS, "diffuse": every - PREVIOUS}


def test_heads_at_chance_have_no_label_beyond_it(both: duckdb.DuckDBPyConnection) -> None:
    assert read_labels(both, TWIN.study).keys() == {"diffuse"}
    shares = "SELECT count(*) FROM head_pattern_means WHERE study = 'noise' AND pattern = 'local' AND share >= 0.4"
    assert both.execute(shares).fetchone() == (TWIN.layers * TWIN.heads,)  # by chance alone


def test_thresholds_decide(both: duckdb.DuckDBPyConnection) -> None:
    assert "previous" not in read_labels(both, "trained", "label_patterns(least_share := 0.95)")
    assert "diffuse" not in read_labels(both, "trained", "label_patterns(least_entropy := 1.01)")


@pytest.mark.slow
def test_too_few_sequences_give_no_labels() -> None:
    with warehouse(MadeUp("few", sequences=3)) as connection:
        assert read_labels(connection, "few") == {}
