"""Steps over an ordered axis, compared with loops over the definition."""

import numpy as np
import pytest

from geometry.statistics.steps import find_step, measure_step


def find_slowly(profile: np.ndarray) -> int:
    """The split with the least squares about the means of both sides, by trying all."""
    squares = {
        place: sum(float(np.square(side - side.mean()).sum()) for side in (profile[:place], profile[place:]))
        for place in range(1, len(profile))
    }
    return min(squares, key=squares.__getitem__)


def measure_slowly(profiles: np.ndarray) -> dict[str, np.ndarray]:
    """Sides of each profile at the place that the others choose, and the two R² by prediction from the others."""
    found: dict[str, list[float]] = {"agrees": [], "before": [], "after": [], "over_slope": []}
    for left in range(len(profiles)):
        others = np.delete(profiles, left, axis=0).mean(axis=0)
        own, place = profiles[left], find_slowly(others)
        found["agrees"].append(find_slowly(own) == place)
        found["before"].append(own[:place].mean())
        found["after"].append(own[place:].mean())
        step = np.concatenate([np.full(place, others[:place].mean()), np.full(len(own) - place, others[place:].mean())])
        x = np.vander(np.arange(len(own)), 2)
        line = x @ np.linalg.lstsq(x, others, rcond=None)[0]
        total = np.square(own - own.mean()).sum()
        found["over_slope"].append(
            (1 - np.square(own - step).sum() / total) - (1 - np.square(own - line).sum() / total)
        )
    return {name: np.array(values) for name, values in found.items()}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_place_is_the_split_of_least_squares(rng: np.random.Generator) -> None:
    for _ in range(200):
        profile = rng.standard_normal(rng.integers(2, 12))
        assert find_step(profile) == find_slowly(profile)


def test_every_sequence_is_measured_where_the_others_have_the_step(rng: np.random.Generator) -> None:
    for sequences, layers in ((2, 4), (8, 30), (5, 2)):
        profiles = rng.standard_normal((sequences, layers))
        found, expected = measure_step(profiles), measure_slowly(profiles)
        for name, values in expected.items():
            np.testing.assert_allclose(getattr(found, name), values, rtol=1e-9, atol=1e-12, err_msg=name)
        assert found.place == find_slowly(profiles.mean(axis=0))


def test_noise_has_no_step_where_others_choose_it_but_has_one_where_it_chooses(rng: np.random.Generator) -> None:
    """The control: the height at each profile's own split is far from 0, for the same noise."""
    heights, chosen = [], []
    for _ in range(200):
        profiles = rng.standard_normal((6, 10))
        found = measure_step(profiles)
        heights.append(np.abs(np.mean(found.after - found.before)))
        own = [find_step(one) for one in profiles]
        sides = [one[place:].mean() - one[:place].mean() for one, place in zip(profiles, own, strict=True)]
        chosen.append(np.mean(np.abs(sides)))
    assert np.mean(heights) < 0.6
    assert np.mean(chosen) > 1


def test_a_step_is_more_than_a_slope_and_a_slope_more_than_a_step(rng: np.random.Generator) -> None:
    noise = 0.01 * rng.standard_normal((8, 12))
    step = measure_step(np.where(np.arange(12) < 5, 0.1, 0.6) + noise)
    slope = measure_step(np.linspace(0.1, 0.6, 12) + noise)
    assert step.place == 5
    assert step.agrees.all()
    assert step.over_slope.min() > 0.1
    assert slope.over_slope.max() < -0.1


def test_profiles_without_variation_are_no_step_and_no_error() -> None:
    found = measure_step(np.full((3, 4), 0.5))
    assert np.isnan(found.over_slope).all()
    np.testing.assert_array_equal(found.after, found.before)
