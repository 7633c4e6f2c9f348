"""What heads look at, from the table by sequence to labels: the numbers by hand, and heads whose labels are known."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from statistics import fmean, stdev

import duckdb
import pytest
from scipy import stats

from geometry.quantities import PATTERNS
from reports.queries import ask
from tests.made_up import SMALL, MadeUp, warehouse
from tests.reports.conftest import TWIN

TRAINED = replace(SMALL, study="trained")
PREVIOUS = {(layer, 0) for layer in range(TRAINED.layers)}  # The heads that are made to look at the token before


@pytest.fixture(scope="module")
def trained() -> Iterator[duckdb.DuckDBPyConnection]:
    with warehouse(TRAINED) as connection:
        yield connection


def read_labels(connection: duckdb.DuckDBPyConnection, study: str, given: str = "head_labels") -> dict[str, set]:
    """The heads of each label."""
    rows = connection.execute(
        f"SELECT label, layer, head FROM {given} WHERE study = ? ORDER BY label", [study]
    ).fetchall()
    return {label: {place[1:] for place in places} for label, places in groupby(rows, lambda row: row[0])}


def test_means_and_intervals_are_those_of_the_sequences(trained: duckdb.DuckDBPyConnection) -> None:
    for name in PATTERNS:
        (of_head,) = trained.execute(
            f"SELECT list({name}) FILTER ({name} IS NOT NULL), avg({name}) / avg({name}_chance) AS lift "
            "FROM head_patterns WHERE study = 'trained' AND layer = 1 AND head = 0"
        ).fetchall()
        found = trained.execute(
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


def test_heads_have_the_labels_they_were_made_for(trained: duckdb.DuckDBPyConnection) -> None:
    every = {(layer, head) for layer in range(TRAINED.layers) for head in range(TRAINED.heads)}
    found = read_labels(trained, "trained")
    assert found == {"previous": PREVIOUS, "local": PREVIOUS, "diffuse": every - PREVIOUS}


@pytest.mark.slow
def test_heads_at_chance_have_no_label_beyond_it() -> None:
    shares = "SELECT count(*) FROM head_pattern_means WHERE study = 'noise' AND pattern = 'local' AND share >= 0.4"
    with warehouse(TRAINED, TWIN) as connection:
        assert read_labels(connection, TWIN.study).keys() == {"diffuse"}
        assert connection.execute(shares).fetchone() == (TWIN.layers * TWIN.heads,)  # by chance alone


def test_thresholds_decide(trained: duckdb.DuckDBPyConnection) -> None:
    assert "previous" not in read_labels(trained, "trained", "label_patterns(least_share := 0.95)")
    assert "diffuse" not in read_labels(trained, "trained", "label_patterns(least_entropy := 1.01)")


@pytest.mark.slow
def test_a_sink_that_windows_hide_is_null_and_told_apart_from_0() -> None:
    """Windows of 24, 14 and 1 of 24 keys: the sink is seen by 23, 13 and none of 23 queries after the first."""
    with warehouse(MadeUp("hidden", first_keys=(0, 10, 23))) as connection:
        of_sink = connection.execute(
            "SELECT min(share), max(share), max(chance), min(queries), max(queries) FROM head_pattern_means "
            "WHERE pattern = 'sink' AND head > 0 GROUP BY layer ORDER BY layer"
        ).fetchall()
        labels = "SELECT count(*) FROM head_labels WHERE label = 'sink' AND layer = 2"
        (named,) = connection.execute(labels).fetchall()
        seen = ask(connection, "queries_that_see_the_sink", study="hidden").rows()
    for (low, high, chance, *queries), window in zip(of_sink[:2], (24, 14), strict=True):
        uniform = fmean(1 / (query + 1) for query in range(1, window))
        assert (low, high, chance) == pytest.approx((uniform, uniform, uniform))
        assert queries == [window - 1, window - 1]
    assert of_sink[2] == (None, None, None, 0, 0)
    assert named == (0,)
    assert seen == [{"layers": 2, "all_layers": 3, "fewest": 0, "most": 13, "queries": 23}]


@pytest.mark.slow
def test_too_few_sequences_give_no_labels() -> None:
    with warehouse(MadeUp("few", sequences=3)) as connection:
        assert read_labels(connection, "few") == {}
