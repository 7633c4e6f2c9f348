"""Random arrangements: their p values, the intervals of these, and how many are drawn."""

import numpy as np
import pytest
from scipy import stats

from geometry.statistics.arrangements import FIRST_DRAWS, LUCK, MOST_DRAWS, Arrangements, End, settle


def make(share: float, seed: int = 0) -> Arrangements:
    """Arrangements of which this share is as high, and none as low."""
    return Arrangements(lambda rng, draws: (int(rng.binomial(draws, share)), 0), "9 KV groups", 1e6, seed)


def test_p_values_count_the_data_as_one_arrangement() -> None:
    drawn = make(0.0)
    assert (drawn.draws, drawn.p(above=True)) == (FIRST_DRAWS, 1 / (FIRST_DRAWS + 1))
    drawn.extend(25_000)
    assert (drawn.draws, drawn.p(above=True)) == (FIRST_DRAWS + 25_000, 1 / (FIRST_DRAWS + 25_001))


@pytest.mark.parametrize("share", [0.0, 0.003, 0.4])
def test_intervals_are_those_of_clopper_and_pearson(share: float) -> None:
    drawn = make(share)
    expected = stats.binomtest(drawn.above, drawn.draws).proportion_ci(1 - LUCK)
    found = [drawn.p(above=True, end=end) for end in ("low", "high")]
    np.testing.assert_allclose(found, [expected.low, expected.high], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize(("share", "draws"), [(0.03, FIRST_DRAWS), (0.3, FIRST_DRAWS), (0.05, MOST_DRAWS)])
def test_they_are_drawn_until_the_verdict_is_stable_or_they_are_most(share: float, draws: int) -> None:
    """At a level of 5 %: a p far from it needs the first, one that equals it never gets enough."""
    drawn = make(share)

    def decide(end: End) -> dict[str, bool]:
        return {"claim": drawn.p(above=True, end=end) <= 0.05}

    settle({"claim": [drawn]}, decide)
    assert drawn.draws == draws


def test_a_p_near_the_level_is_drawn_as_often_as_its_verdict_needs() -> None:
    drawn = make(0.048)
    settle({"claim": [drawn]}, lambda end: {"claim": drawn.p(above=True, end=end) <= 0.05})
    assert FIRST_DRAWS < drawn.draws < MOST_DRAWS
    assert drawn.p(above=True, end="high") <= 0.05
