"""Table 2: where over N the margin Δ is above 0."""

from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples
from geometry.statistics.intervals import SHARE

MEASURES = {
    "margin_positive_in_tail": Measure(
        "mean over heads of the share of the N of regime II with Δ > 0", "share with Δ > 0", SHARE
    ),
    "margin_positive_in_valleys": Measure(
        "mean over heads of the share of the N of regime IV with Δ > 0", "share with Δ > 0", SHARE
    ),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    return evidence.ask_means(
        """
        SELECT
            sequence,
            CASE regime WHEN 'II' THEN 'margin_positive_in_tail' ELSE 'margin_positive_in_valleys' END AS measure,
            avg(positive_share) AS value,
            count(positive_share) AS rows
        FROM regimes_by_sequence
        WHERE query = $query AND regime IN ('II', 'IV')
        GROUP BY sequence, regime
        """
    )


def _explain_no_regime(evidence: Evidence) -> str | None:
    columns = evidence.ask_columns(
        "SELECT count(*) AS rows FROM regimes_by_sequence WHERE query = $query AND regime = 'II'"
    )
    return None if columns["rows"][0] else "no head has a regime II"


CLAIMS = (
    Claim(
        "margin_positive_early",
        "Table 2",
        "In regime II, with the top of the tail selected, Δ > 0",
        (Part("margin_positive_in_tail", ">=", 0.5),),
        "Δ is above 0 in most of regime II",
        "Δ is not above 0 in most of regime II",
        "regimes",
        null="margins of either sign: a share of 1/2",
        rows_of="heads with the regime",
        premise="heads with a regime II",
        explain_gap=_explain_no_regime,
    ),
)
