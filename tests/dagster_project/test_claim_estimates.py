"""Each claim of the paper has a made-up study that supports it, one that does not, and one that cannot test it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dagster_project.steps.summaries.claims.effects import CONTRASTS, PREDICTS, compute_rank_correlations, remove_sign
from dagster_project.steps.summaries.claims.estimating import SCHEMA, build_claim_row
from dagster_project.steps.summaries.claims.parts import Estimated
from geometry.arrays import F64
from geometry.statistics.resampling import Interval
from storage.warehouse.connection import connect
from storage.warehouse.relations import read_paper_claims
from tests.dagster_project import made_up_studies as made
from tests.dagster_project.made_up_studies import SEQUENCES, flat

Study = Callable[[], dict[str, Estimated]]
"""A made-up study: its estimates of some claims."""


def of_layers(**changed: object) -> Study:
    return lambda: made.estimates(made.layers(**changed))  # type: ignore[arg-type]


def of_weights(**changed: object) -> Study:
    return lambda: made.weights(**changed)  # type: ignore[arg-type]


def of_cosines(curve: Callable[[F64], F64]) -> Study:
    return lambda: made.cosines(curve)


def of_labels(*letters: str) -> Study:
    return lambda: made.labelled(*letters)


def of_regimes(positive: float | None, regime: str) -> Study:
    return lambda: made.regimes(positive, regime=regime)


def of_nulls(null: str, **difference: float) -> Study:
    return lambda: made.separability(null, difference)


def bending(n: F64, *, first: float, at: float, then: float) -> F64:
    """A curve that keeps its level up to an N, and falls by a power of N behind it."""
    return np.maximum(first * np.minimum(1, (n / at) ** -then), 0.01)


def elbow(at: float) -> made.Curve:
    return lambda n, rho_0: bending(n, first=0.9, at=at, then=1.5) + 0 * rho_0


def bowl(depth: float) -> made.Curve:
    """High at small and large N and lower by a depth between, or the reverse."""
    return lambda n, rho_0: 0.5 + depth * np.cos(2 * np.pi * np.log(n) / np.log(63)) + 0 * rho_0


def rising(slope: float) -> made.Curve:
    """A quantity that rises with ρ_0 over heads."""
    return lambda n, rho_0: 0.5 + slope * rho_0 + 0 * n


def early(n: F64, rho_0: F64) -> F64:
    """Rises with ρ_0 at small N, and falls with it at large N."""
    return np.where(n <= 4, 0.5 + 0.4 * rho_0, 0.5 - 0.2 * rho_0)


def late(n: F64, rho_0: F64) -> F64:
    return np.where(n <= 16, 0.5 - 0.2 * rho_0, 0.5 + 0.4 * rho_0)


def passing(n: F64, rho_0: F64) -> F64:
    """Recall that falls through the reported band, where it is in the middle of ln N, and leaves it."""
    return 1 - 0.45 * np.log(n) / np.log(63) + 0 * rho_0


def uncorrelated(recall: F64) -> F64:
    """Of eight levels of Recall, from 0.3 to 0.7, as many high ones are worth something as low ones."""
    return np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0])[np.round((recall - 0.3) * 17.5).astype(np.int64)]


ALONE = of_layers(sequences=1)
ONE_KV_HEAD = of_layers(count=1, heads=2, kv=1)
NO_SINK = of_layers(sink_times=1.0)
NO_PREMISE = of_layers(margin=-0.1)
TWO_KEYS = of_layers(n_keys=2)
FEW_KEYS = of_layers(n_keys=6)
VACUOUS = of_layers(lower=(-np.inf, -np.inf), upper=(np.inf, np.inf))
ENCLOSED = of_layers()
ABOVE = of_layers(lower=(0.02, 0.02), upper=(0.08, 0.08))
SHORT = of_weights(positions=6)
NO_SIMILARITY = of_cosines(lambda k: np.where(k == 0, 1.0, 0.0))
ORDERED = of_labels("TTTTTTTO", "TTTTTRRO", "RRRRRRRO", "RRRRRMMO", "MMMMMMMO", "MMMMMMMO")
REVERSED = of_labels("MMMMMMMO", "MMMMMMMO", "RRRRRMMO", "RRRRRRRO", "TTTTTRRO", "TTTTTTTO")
EARLY_RESETS = of_labels("RRRRRRRR", "RRRRRRRR", "MMMMMMMM", "MMMMMMMM", "MMMMMMMM", "MMMMMMMM", "MMMMMMMM", "MMMMMMMM")
OTHERS = of_labels(*["OOOOOOOR"] * 6)
ONE_LAYER = of_labels("TTTRRRMM")

STUDIES: dict[str, tuple[Study, Study, Study]] = {
    "norms_stable": (of_layers(within=0.05), of_layers(between=0.5), ALONE),
    "norms_stable_within_sequence": (of_layers(within=0.01), of_layers(), ONE_KV_HEAD),
    "sink_compressed": (of_layers(), of_layers(sink_norm=1.0), NO_SINK),
    "similarity_decays_exponentially": (
        of_cosines(lambda k: np.exp(-0.3 * k)),
        of_cosines(lambda k: 0.5 + 0.5 * np.cos(0.5 * k)),
        NO_SIMILARITY,
    ),
    "exponential_preferred": (
        of_cosines(lambda k: np.exp(-0.05 * k) + 0.02 * np.sin(2.5 * k)),
        of_cosines(lambda k: 0.3 + 0.7 * np.exp(-k)),
        NO_SIMILARITY,
    ),
    "sink_dominates": (of_weights(), of_weights(p_sink=0.004), SHORT),
    "four_phases": (of_weights(), of_weights(eta=0.0, alike=0.1, scatter=0.001), SHORT),
    "phases_fit": (of_weights(), of_weights(alike=1.0, eta_growth=0.0), SHORT),
    "premise_holds": (of_layers(), NO_PREMISE, TWO_KEYS),
    "precision_covered": (ENCLOSED, ABOVE, NO_PREMISE),
    "recall_covered": (ENCLOSED, ABOVE, NO_PREMISE),
    "precision_enveloped": (ENCLOSED, ABOVE, VACUOUS),
    "recall_enveloped": (ENCLOSED, ABOVE, VACUOUS),
    "upper_tight": (ENCLOSED, of_layers(upper=(0.3, 0.3)), FEW_KEYS),
    "lower_conservative": (of_layers(lower=(-0.3, -0.3)), of_layers(lower=(-0.01, -0.01), upper=(0.3, 0.3)), VACUOUS),
    "small_n_elbow": (
        of_layers(precision=elbow(3), recall=elbow(3)),
        of_layers(precision=elbow(12), recall=elbow(12)),
        of_layers(precision=flat(0.5), recall=lambda n, rho_0: 0.9 / n + 0 * rho_0),
    ),
    "intermediate_weakest": (
        of_layers(specificity=bowl(0.3), recall=bowl(0.3)),
        of_layers(specificity=bowl(0.3), recall=bowl(-0.3)),
        of_layers(n_keys=4),
    ),
    "distinguishable_share_settles": (of_layers(recall=flat(0.78)), of_layers(recall=passing), of_layers(n_keys=4)),
    "sink_raises_recall": (of_layers(recall=rising(0.5)), of_layers(recall=rising(-0.5)), NO_SINK),
    "sink_effect_peaks_early": (of_layers(recall=early), of_layers(recall=late), NO_SINK),
    "sink_predicts_recall": (of_layers(recall=rising(0.5)), of_layers(recall=rising(-0.5)), NO_SINK),
    "sink_predicts_precision": (of_layers(specificity=rising(0.5)), of_layers(specificity=rising(-0.5)), NO_SINK),
    "sink_widens_r_min": (of_layers(r_min=rising(0.5)), of_layers(r_min=rising(-0.5)), NO_SINK),
    "regimes_fit": (of_labels(*["TTRRMMMM"] * 6), OTHERS, of_labels(*["RRRRRRRR"] * 6)),
    "retrievers_first": (ORDERED, REVERSED, of_labels("TRRR", "RRRR", "MMMM")),
    "resets_early": (EARLY_RESETS, REVERSED, ONE_LAYER),
    "mixers_prevail_deep": (EARLY_RESETS, REVERSED, ONE_LAYER),
    "kinds_in_order": (ORDERED, REVERSED, OTHERS),
    "margin_positive_early": (of_regimes(0.9, "II"), of_regimes(0.1, "II"), of_regimes(None, "II")),
    "margin_lost_in_valleys": (of_regimes(0.1, "IV"), of_regimes(0.9, "IV"), of_regimes(None, "IV")),
    "selection_sharpens": (
        of_nulls("random_selection", specificity=0.2, recall=0.3, auc=0.1),
        of_nulls("random_selection", specificity=0.2, recall=0.3, auc=-0.1),
        made.without_nulls,
    ),
    "recall_predicts_loss": (
        lambda: made.worth(lambda recall: recall),
        lambda: made.worth(uncorrelated),
        lambda: made.worth(lambda recall: recall, size=1e-4),
    ),
    **dict.fromkeys(
        CONTRASTS, (lambda: made.policies(-0.2), lambda: made.policies(0.2), lambda: made.policies(-1e-3, cost=1e-3))
    ),
    "values_sharpen": (
        of_nulls("shuffled_values", specificity=0.2, recall=0.3, auc=0.1),
        of_nulls("shuffled_values", specificity=-0.2, recall=0.3, auc=0.1),
        made.without_nulls,
    ),
}
"""For each claim a study that supports it, one that does not, and one that cannot test it."""


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(made.database()) as connection:
        connection.execute(
            "INSERT INTO studies BY NAME SELECT 'made' AS study, 'm' AS model, 'm' AS model_name, 'c' AS corpus, "
            "'c' AS corpus_name, 64 AS context_length, 12 AS sequences, 4 AS layers, 8 AS heads, 4 AS kv_heads, "
            "16 AS head_dim, 'float32' AS dtype, "
            "'cpu' AS device, '{}' AS provenance, 1 AS format_version"
        )
        yield connection


def judge(
    connection: duckdb.DuckDBPyConnection, claim: str, found: Estimated, sequences: int = SEQUENCES
) -> tuple[str, str | None]:
    """Verdict and reason of the view ``claims``."""
    (stated,) = (stated for stated in read_paper_claims() if stated["claim"] == claim)
    row = pa.RecordBatch.from_pylist([build_claim_row(stated, found, sequences)], SCHEMA)
    connection.register("incoming", pa.Table.from_batches([row]))
    connection.execute("DELETE FROM claim_estimates")
    connection.execute("INSERT INTO claim_estimates BY NAME SELECT 'made' AS study, * FROM incoming")
    connection.unregister("incoming")
    judged = connection.execute("SELECT verdict, reason FROM claims WHERE claim = ?", [claim]).fetchall()
    ((verdict, reason),) = judged
    return str(verdict), reason


def test_every_claim_has_its_three_studies() -> None:
    assert set(STUDIES) == {claim["claim"] for claim in read_paper_claims()}


@pytest.mark.one_case
@pytest.mark.parametrize("claim", STUDIES)
def test_a_claim_can_be_supported_fail_and_not_be_tested(database: duckdb.DuckDBPyConnection, claim: str) -> None:
    supporting, failing, silent = (study()[claim] for study in STUDIES[claim])
    sequences = 1 if STUDIES[claim][2] is ALONE else SEQUENCES
    assert judge(database, claim, supporting) == ("supported", None), supporting
    assert judge(database, claim, failing) == ("not supported", None), failing
    verdict, reason = judge(database, claim, silent, sequences)
    assert verdict == "not testable", silent
    assert reason


def test_a_study_without_effects_tests_none_of_their_claims() -> None:
    found = made.without_effects()
    assert set(found) == {PREDICTS, *CONTRASTS}
    assert {one.reason for one in found.values()} == {"the study has no effects"}


def test_random_budgets_count_by_their_mean_and_heads_by_their_ranks() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((9, 3)), rng.standard_normal(9)
    weights = np.ones((9, 3))
    weights[:, 1] = [0, 2, 1, 1, 3, 0, 1, 1, 0]
    weights[:, 2] = [9, *[0] * 8]
    whole, drawn, none = compute_rank_correlations(x, y, weights)
    assert whole == pytest.approx(stats.spearmanr(x[:, 0], y).statistic)
    again = np.repeat(np.arange(9), weights[:, 1].astype(int))
    assert drawn == pytest.approx(stats.spearmanr(x[again, 1], y[again]).statistic)
    assert np.isnan(none)
    assert remove_sign(Interval(-0.5, -0.8, -0.2)) == Interval(0.5, 0.2, 0.8)
    assert remove_sign(Interval(-0.1, -0.4, 0.3)) == Interval(0.1, 0.0, 0.4)


BY_TABLES = {
    "norms_stable_within_sequence": "SELECT median(cv_within_sequence) FROM assumption_norms",
    "sink_dominates": "SELECT p_sink / p_base FROM assumption_weights_model WHERE query = $query",
    "phases_fit": "SELECT r2_log FROM assumption_weights_model WHERE query = $query",
    "regimes_fit": "SELECT avg((label = 'Other')::INT) FROM head_taxonomy WHERE query = $query",
    "resets_early": "SELECT avg((label = 'Reset')::INT) FROM head_taxonomy "
    "WHERE query = $query AND layer < $layers / 4",
    "mixers_prevail_deep": "SELECT avg((label = 'Mixer')::INT) FROM head_taxonomy "
    "WHERE query = $query AND layer >= $layers / 2",
    "margin_lost_in_valleys": "SELECT avg(share) FROM (SELECT avg(1 - positive_share) AS share "
    "FROM regimes_by_sequence WHERE query = $query AND regime = 'IV' GROUP BY layer, head)",
}
"""Values of claims that other tables tell as well."""


@pytest.mark.slow
def test_values_are_those_of_the_tables(mine: Path) -> None:
    with closing(connect(mine / "warehouse")) as connection:
        ((query, layers),) = connection.sql(
            "SELECT (SELECT max(query) FROM head_taxonomy), (SELECT layers FROM studies)"
        ).fetchall()
        found = dict(connection.sql("SELECT claim, value FROM claims WHERE study = 'mine'").fetchall())
        for claim, asked in BY_TABLES.items():
            at = {"query": query, "layers": layers}
            given = {name: value for name, value in at.items() if f"${name}" in asked}
            ((wanted,),) = connection.execute(asked, given).fetchall()
            assert found[claim] == (None if wanted is None else pytest.approx(wanted, rel=1e-5)), claim
    assert sum(found[claim] is not None for claim in BY_TABLES) >= 5
