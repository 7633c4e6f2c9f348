"""The last query beside the others: read again from the rows of a made-up model, without SQL."""

import numpy as np
import pytest
from scipy import stats

from dagster_project.analysis.claims import queries
from tests.dagster_project.claims.judged import compute, key
from tests.dagster_project.claims.made_up import HEADS, LAYERS, SEQUENCES, make_evidence, make_tables

HEADS_OF_ALL = LAYERS * HEADS


def test_rows_are_means_over_queries_then_sequences_with_student_intervals() -> None:
    levels = np.reshape(make_tables()["query_heads"]["recall_level"], (SEQUENCES, HEADS_OF_ALL, 3)).astype(np.float32)
    levels = levels.astype(np.float64)
    rows = key([row for row in compute()["query_means"] if row["measure"] == "recall_level"], "layer", "head")
    assert len(rows) == HEADS_OF_ALL
    for at, row in enumerate(rows[place] for place in sorted(rows)):
        for name, numbers in {
            "mean": levels[:, at].mean(axis=1),
            "last_difference": levels[:, at, 2] - levels[:, at, :2].mean(axis=1),
        }.items():
            low, high = stats.ttest_1samp(numbers, 0).confidence_interval(0.95)
            found = [row[name + end] for end in ("", "_low", "_high")]
            assert found == pytest.approx([numbers.mean(), low, high], abs=1e-9), (name, at)
        assert row["sequences"] == SEQUENCES


def test_queries_of_fewer_than_32_keys_and_heads_without_others_are_left_out() -> None:
    """With one of the others left, that is the others; with none, there is a mean but no difference."""
    one_left, none_left = (make_evidence(make_tables(other_query=other)) for other in (31, 30))
    levels = np.reshape(make_tables(other_query=31)["query_heads"]["recall_level"], (SEQUENCES, HEADS_OF_ALL, 3))
    samples = queries.measure(one_left)
    expected = (levels[..., 2] - levels[..., 1]).mean(axis=1)
    np.testing.assert_allclose(samples["recall_last_difference"].of_sequences, expected, atol=1e-6)
    assert queries.measure(none_left) == {}
    row = next(row for row in queries.list_rows(none_left) if row["measure"] == "recall_level")
    assert np.isnan([row["last_difference"], row["last_difference_low"]]).all()
    assert row["mean"] == pytest.approx(levels[:, 0, 2].mean(), abs=1e-6)


@pytest.mark.parametrize("apart", [0.0, 0.05, 0.2])
def test_the_typical_distance_is_that_of_heads_and_not_of_noise(apart: float) -> None:
    """Heads are apart up and down, so that their mean says nothing; the plain mean square would count noise."""
    rng = np.random.default_rng(0)
    sign = np.where(np.arange(2000) % 2, 1, -1)
    drawn = apart * sign + 0.3 * rng.standard_normal((6, 2000))
    assert queries.average_squares(drawn) == pytest.approx(apart**2, abs=0.001)
    assert (drawn.mean(axis=0) ** 2).mean() > apart**2 + 0.01  # a control
    slowly = [np.mean(drawn[i] * drawn[j]) for i in range(6) for j in range(6) if i != j]
    assert queries.average_squares(drawn) == pytest.approx(np.mean(slowly), rel=1e-9)
