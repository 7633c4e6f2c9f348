"""Random arrangements: how often things in another order give a statistic as large, drawn until that decides."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Count = Callable[[np.random.Generator, int], tuple[int, int]]
"""Draws so many arrangements and counts those whose statistic is as high as that of the data, and as low."""

End = Literal["value", "low", "high"]
"""A p value as estimated, or an end of the interval that its finite number of draws leaves it in."""

FIRST_DRAWS, MOST_DRAWS = 10_000, 1_000_000
"""Arrangements drawn at first, and at most; the p of an arrangement that none of the first reaches is 1/10,001."""

LUCK = 0.001
"""Probability with which the p value of all arrangements lies outside the interval that the drawn ones give."""


@dataclass
class Arrangements:
    """The p values of random arrangements; the data count as one of them (Phipson & Smyth 2010)."""

    count: Count
    what: str
    """What is arranged, with its number, such as “9 KV groups”."""
    ways: float
    """In how many ways that can be arranged; no p value of all of them is below 1/ways."""
    seed: int = 0
    draws: int = 0
    above: int = 0
    """How many of the draws have a statistic as high."""
    below: int = 0
    """How many have one as low."""

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.extend(FIRST_DRAWS)

    def extend(self, draws: int) -> None:
        """Draw so many more arrangements, ``FIRST_DRAWS`` at a time."""
        for start in range(0, draws, FIRST_DRAWS):
            block = min(FIRST_DRAWS, draws - start)
            above, below = self.count(self._rng, block)
            self.draws, self.above, self.below = self.draws + block, self.above + above, self.below + below

    def p(self, *, above: bool, end: End = "value") -> float:
        """The one-sided p value of a statistic as high, or as low, or an end of its Clopper-Pearson interval."""
        reached = self.above if above else self.below
        if end == "value":
            return (1 + reached) / (1 + self.draws)
        from scipy import special  # imported here because it is slow to import

        if end == "low":
            return float(special.betaincinv(reached, self.draws - reached + 1, LUCK / 2)) if reached else 0.0
        if reached == self.draws:
            return 1.0
        return float(special.betaincinv(reached + 1, self.draws - reached, 1 - LUCK / 2))


def settle(arrangements: Mapping[str, list[Arrangements]], decide: Callable[[End], Mapping[str, Any]]) -> None:
    """Draw arrangements until no decision depends on the luck of the draw, at most ``MOST_DRAWS`` of each.

    Parameters
    ----------
    arrangements
        What each decision rests on, by its name.
    decide
        All decisions, by name, if every p value of arrangements were at that end of its interval.
    """
    while True:
        low, high = decide("low"), decide("high")
        doubtful = [one for name, of_name in arrangements.items() if low[name] != high[name] for one in of_name]
        short = [one for one in doubtful if one.draws < MOST_DRAWS]
        if not short:
            return
        for one in short:
            one.extend(min(3 * one.draws, MOST_DRAWS - one.draws))
