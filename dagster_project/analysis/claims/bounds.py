"""The bounds of Theorems 1 and 2: their premise (Table 2), how often they hold, and how far off they are (Figure 5).

κ is unknown, so a claim about bounds holds if it does at one of the computed κ: its measures are named ``NAME[κ]``.
"""

from functools import partial

import numpy as np

from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples, require
from geometry.statistics.intervals import DIFFERENCE, SHARE

METRICS = {"precision": "Precision", "recall": "Recall"}

LEAST = {"covered": 100, "enveloped": 10, "lower": 10}  # Rows that a share needs at one κ

MEASURES = {
    "premise_share": Measure("mean over heads of the share of ln N with Δ > 0", "share with Δ > 0", SHARE),
    "margin_positive_in_tail": Measure(
        "mean over heads of the share of the N of regime II with Δ > 0", "share with Δ > 0", SHARE
    ),
    "margin_positive_in_valleys": Measure(
        "mean over heads of the share of the N of regime IV with Δ > 0", "share with Δ > 0", SHARE
    ),
    **{
        f"{metric}_covered": Measure(
            f"share of the pairs of head and N at which mean {name} lies within its bounds, where Δ > 0 in most "
            "sequences and the bounds say something, at this κ",
            "share of pairs within",
            SHARE,
        )
        for metric, name in METRICS.items()
    },
    **{
        f"{metric}_enveloped": Measure(
            f"share of ln N at which the model's mean {name} lies within its mean bounds, where these say something, "
            "at this κ",
            "share of ln N within",
            SHARE,
        )
        for metric, name in METRICS.items()
    },
    "upper_distance": Measure(
        "mean over ln N of the distance of the model's mean Precision and Recall to their mean upper bounds, at this κ",
        "distance",
        SHARE,
    ),
    "lower_excess": Measure(
        "mean over ln N of the distance to the lower bounds minus that to the upper ones, where the lower ones leave "
        "out a tenth of what is possible, at this κ",
        "lower minus upper distance",
        DIFFERENCE,
    ),
}


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    premise = evidence.ask_means(
        """
        SELECT sequence, 'premise_share' AS measure, avg(premise_share) AS value, count(premise_share) AS rows
        FROM head_levels
        WHERE query = $query
        GROUP BY sequence
        UNION ALL
        SELECT
            sequence,
            CASE regime WHEN 'II' THEN 'margin_positive_in_tail' ELSE 'margin_positive_in_valleys' END,
            avg(positive_share),
            count(positive_share)
        FROM regimes_by_sequence
        WHERE query = $query AND regime IN ('II', 'IV')
        GROUP BY sequence, regime
        """
    )
    columns = evidence.ask_columns(
        "SELECT * FROM coverage_by_sequence ORDER BY kappa, metric, without_sequence NULLS FIRST"
    )
    samples = dict(premise)
    for kappa in np.unique(columns["kappa"]):
        of_kappa = {
            metric: {
                name: column[(columns["kappa"] == kappa) & (columns["metric"] == metric)]
                for name, column in columns.items()
            }
            for metric in METRICS
        }
        samples |= _measure_kappa(of_kappa, f"[{kappa:g}]")
    return samples


def _measure_kappa(of_metrics: dict[str, dict[str, np.ndarray]], at: str) -> Samples:
    """The measures at one κ, from values of all sequences, the first, and without each."""
    samples = {}
    for metric, columns in of_metrics.items():
        for share in ("covered", "enveloped"):
            least, rows, values = LEAST[share], columns[f"{share}_rows"][0], columns[share]
            if rows >= least:
                samples[f"{metric}_{share}{at}"] = Sample.of_jackknife(values[0], values[1:], int(rows))
    for name, count, least in (("upper_distance", "enveloped", 0), ("lower_excess", "lower", LEAST["lower"])):
        rows = int(sum(columns[f"{count}_rows"][0] for columns in of_metrics.values()))
        known = [columns[name] for columns in of_metrics.values() if not np.isnan(columns[name][0])]
        if known and rows >= least:
            mean = np.mean(known, axis=0)
            samples[f"{name}{at}"] = Sample.of_jackknife(mean[0], mean[1:], rows)
    return samples


def _explain_no_bounds(evidence: Evidence, share: str, metric: str | None = None) -> str | None:
    chosen = f"WHERE metric = '{metric}'" if metric else ""
    rows = evidence.count(f"SELECT max({share}_rows) FROM coverage_by_sequence {chosen}")
    if rows >= LEAST[share]:
        return None
    if share == "covered":
        return (
            f"{rows} pairs of head and N have informative bounds and Δ > 0 in most sequences, {LEAST[share]} are needed"
        )
    if share == "lower":
        return f"mean lower bounds leave out a tenth of what is possible at {rows} N, {LEAST[share]} are needed"
    return "the mean bounds leave out less than half of what is possible"


_within = partial(Claim, alternatives=True, rows_of="pairs of head and N", least_rows=LEAST["covered"])
_of_model = partial(
    Claim, alternatives=True, rows_of="N", least_rows=LEAST["enveloped"], premise="mean bounds that say something"
)

CLAIMS = (
    Claim(
        "premise_holds",
        "Theorems 1-2",
        "Selected keys have a positive margin Δ over those left out",
        (Part("premise_share", ">=", 0.5),),
        "the theorems’ premise Δ > 0 holds in most selections",
        "the theorems’ premise Δ > 0 fails in most selections",
        "margins",
        null="margins of either sign: a share of 1/2",
    ),
    *(
        _within(
            f"{metric}_covered",
            f"Theorem {number}",
            f"Mean {name} of a head lies within its bounds",
            (Part(f"{metric}_covered", ">=", 0.95),),
            f"the mean {name} of heads lies within its bounds where the theorems apply",
            f"the mean {name} of heads leaves its bounds where the theorems apply",
            "coverage",
            null="bounds that exclude nothing: they must leave out half of what is possible",
            premise="Δ > 0 in most sequences, and bounds that say something",
            explain_gap=partial(_explain_no_bounds, share="covered", metric=metric),
        )
        for number, (metric, name) in enumerate(METRICS.items(), 1)
    ),
    *(
        _of_model(
            f"{metric}_enveloped",
            f"Figure 5 {side}",
            f"The model's mean {name} lies within the mean bounds",
            (Part(f"{metric}_enveloped", ">=", 0.95),),
            f"the model’s mean {name} lies within its mean bounds",
            f"the model’s mean {name} leaves its mean bounds",
            f"{metric}-bounds",
            null="bounds that exclude nothing: they must leave out half of what is possible",
            explain_gap=partial(_explain_no_bounds, share="enveloped", metric=metric),
        )
        for side, (metric, name) in zip(("left", "right"), METRICS.items(), strict=True)
    ),
    _of_model(
        "upper_tight",
        "Figure 5",
        "Upper bounds are tight",
        (Part("upper_distance", "<=", 0.1),),
        "upper bounds are tight",
        "upper bounds are not tight",
        "precision-bounds",
        null="an upper bound of 1, which is tight only beside a mean above 0.9",
        least_rows=0,
        premise=None,
    ),
    _of_model(
        "lower_conservative",
        "Figure 5",
        "Lower bounds are conservative: farther from the means than upper ones",
        (Part("lower_excess", ">"),),
        "lower bounds are farther from the means than upper ones",
        "lower bounds are no farther from the means than upper ones",
        "precision-bounds",
        null="a lower bound of nearly 0: only where it leaves out a tenth of what is possible",
        premise="mean lower bounds that leave out a tenth of what is possible",
        explain_gap=partial(_explain_no_bounds, share="lower"),
    ),
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
        explain_gap=require(
            "SELECT count(*) FROM regimes_by_sequence WHERE query = $query AND regime = 'II'", "no head has a regime II"
        ),
    ),
)
