"""What the columns of fits say where a number is out of reach: of two sequences that differ, of too few positions."""

import math

import numpy as np
import pytest

from dagster_project.analysis import fits

BIC = {"bic_plateau": 10.0, "bic_growth": 8.0, "bic_tied": 5.0, "bic_untied": math.nan, "effective_points": 2.0}


def test_an_oscillation_that_could_not_be_fitted_has_no_strength() -> None:
    assert fits.measure_oscillation(BIC) == 1.5
    assert math.isnan(fits.measure_oscillation(BIC | {"bic_tied": math.nan}))


@pytest.mark.parametrize("way", [-2000.0, -1.0, 0.0, 1.0, 2000.0])
def test_ends_of_an_interval_of_a_weight_are_weights(way: float) -> None:
    weight = np.array([0, 1e-20, 0.3, math.nan])
    scaled = fits._scale_weight(weight, np.full(4, way))
    assert np.isnan(scaled[3])
    assert scaled[0] == 0
    assert ((scaled[1:3] > 0) & (scaled[1:3] <= 1)).all()
    assert ((scaled[:3] - weight[:3]) * way >= 0).all()
    if abs(way) == 1:
        assert scaled[1] == pytest.approx(1e-20 * math.exp(way))
