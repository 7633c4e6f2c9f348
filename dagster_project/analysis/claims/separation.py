"""How heads separate what they select: levels over ln N, compared with chance, and their course with N (Figure 5)."""

from functools import partial

from dagster_project.analysis.claims.evidence import Evidence
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples
from geometry.statistics.intervals import DIFFERENCE, SHARE

LABELS = {"recall": "Recall", "specificity": "specificity", "auc": "AUC"}
NULLS = {"random": "N keys at random", "shuffled": "shuffled value states"}
THIRDS = ("first", "middle", "last")
CURVES = ("recall", "specificity")
CONTRASTS = tuple(
    (name, one, less) for name in CURVES for one, less in (("first", "middle"), ("last", "middle"), ("first", "last"))
)
"""Curves, and the thirds of ln N that are compared in each."""

DISTINGUISHABLE = (0.70, 0.85)
"""Share of the selected keys that can be told apart, as reported for arXiv 2508.17821."""

MEASURES = {
    **{f"{name}_level": Measure(f"mean {LABELS[name]} over heads and ln N", LABELS[name], SHARE) for name in CURVES},
    **{
        f"{name}_{third}": Measure(
            f"mean {LABELS[name]} over heads and the {third} third of ln N", f"{third} third", SHARE
        )
        for name in CURVES
        for third in THIRDS
    },
    **{
        f"{name}_{one}_over_{less}": Measure(
            f"mean over heads of {LABELS[name]} in the {one} third of ln N minus that in the {less} third",
            f"{LABELS[name]}, {one} less {less} third",
            DIFFERENCE,
        )
        for name, one, less in CONTRASTS
    },
    **{
        f"{name}_over_{null}": Measure(
            f"mean over heads and ln N of {LABELS[name]} minus that of {NULLS[null]}", LABELS[name], DIFFERENCE
        )
        for null in NULLS
        for name in LABELS
    },
    **{
        f"{name}_compared": Measure(
            f"mean over heads and ln N of {LABELS[name]}, where it is compared with chance", LABELS[name], SHARE
        )
        for name in ("recall", "auc")
    },
    **{
        f"{name}_of_{null}": Measure(f"mean over heads and ln N of {LABELS[name]} of {NULLS[null]}", NULLS[null], SHARE)
        for null in NULLS
        for name in ("recall", "auc")
    },
    "focused_share": Measure(
        "share of the heads that give 90 % of their attention to at most a tenth of their keys", "focused heads", SHARE
    ),
    "recall_over_context": Measure(
        "mean over heads and ln N of Recall at the last query minus that at the first", "Recall", DIFFERENCE
    ),
}


_LEVELS = f"""
WITH levels AS (
    SELECT
        sequence,
        count(recall) AS rows,
        {", ".join(f"avg({name}) AS {name}_level" for name in CURVES)},
        {", ".join(f"avg({name}_{third}) AS {name}_{third}" for name in CURVES for third in THIRDS)},
        {", ".join(f"avg({name}_{one} - {name}_{less}) AS {name}_{one}_over_{less}" for name, one, less in CONTRASTS)}
    FROM head_levels
    WHERE query = $query
    GROUP BY sequence
)
UNPIVOT levels ON COLUMNS(* EXCLUDE (sequence, rows)) INTO NAME measure VALUE value
"""
"""Means over heads of ``head_levels``, and differences of thirds of ln N."""

_BESIDE_NULLS = """
WITH points AS (
    SELECT
        *,
        ln(coalesce(lead(n) OVER neighbours * n, (n + 0.5) ** 2)
            / coalesce(lag(n) OVER neighbours * n, (n - 0.5) ** 2)) AS weight
    FROM separability_by_sequence
    WHERE query = $query AND n > 1
    WINDOW neighbours AS (PARTITION BY sequence, measure, null_model ORDER BY n)
),
levels AS (
    SELECT
        sequence,
        measure,
        CASE null_model WHEN 'random_selection' THEN 'random' ELSE 'shuffled' END AS null_model,
        sum(weight * value) / sum(weight) AS value,
        sum(weight * null_value) / sum(weight) AS null_value,
        sum(weight * (value - null_value)) / sum(weight) AS difference,
        (SELECT max(heads) FROM separability_model WHERE query = $query) AS rows
    FROM points
    WHERE measure IN ('recall', 'specificity', 'auc')
    GROUP BY ALL
)
SELECT sequence, measure || '_over_' || null_model AS measure, difference AS value, rows FROM levels
UNION ALL
SELECT sequence, measure || '_of_' || null_model, null_value, rows FROM levels WHERE measure <> 'specificity'
UNION ALL
SELECT sequence, measure || '_compared', value, rows
FROM levels
WHERE measure <> 'specificity' AND null_model = 'random'
"""
"""Means over heads and ln N beside those of the nulls."""

_OTHERS = """
SELECT sequence, 'focused_share' AS measure, avg((10 * n_90 <= n_keys)::INT) AS value, count(*) AS rows
FROM concentration
WHERE query = $query
GROUP BY sequence
UNION ALL
SELECT
    sequence,
    'recall_over_context',
    avg(recall) FILTER (WHERE query = $query)
        - avg(recall) FILTER (WHERE query = (SELECT min(query) FROM attention_rows)),
    count(recall) FILTER (WHERE query = $query)
FROM head_levels
WHERE (SELECT min(query) FROM attention_rows) < $query
GROUP BY sequence
"""
"""Heads that give most weight to few keys, and Recall over context sizes."""


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    return {
        name: sample for sql in (_LEVELS, _BESIDE_NULLS, _OTHERS) for name, sample in evidence.ask_means(sql).items()
    }


def _explain_no_thirds(evidence: Evidence) -> str | None:
    columns = evidence.ask_columns("SELECT count(recall_middle) AS known FROM head_levels WHERE query = $query")
    return None if columns["known"][0] else "there are fewer than three values of N from 2 on"


def _explain_no_nulls(evidence: Evidence) -> str | None:
    columns = evidence.ask_columns("SELECT count(*) AS known FROM separability_by_sequence")
    return None if columns["known"][0] else "the study computes no nulls"


_over_nulls = partial(Claim, shown_by="chance-by-n", premise="nulls (analysis.nulls)", explain_gap=_explain_no_nulls)
_by_thirds = partial(
    Claim, shown_by="chance-by-n", premise="an N in every third of ln N", explain_gap=_explain_no_thirds
)

CLAIMS = (
    _over_nulls(
        "selection_sharpens",
        "Abstract",
        "Top-N selection sharpens separability",
        tuple(Part(f"{name}_over_random", ">") for name in LABELS),
        "top-N selection separates better than N keys at random",
        "top-N selection does not separate better than N keys at random",
    ),
    _over_nulls(
        "values_sharpen",
        "Abstract",
        "Value states sharpen what the weights separate",
        tuple(Part(f"{name}_over_shuffled", ">") for name in LABELS),
        "value states separate the selected keys better than shuffled ones do",
        "value states do not separate the selected keys better than shuffled ones do",
    ),
    _by_thirds(
        "small_n_strongest",
        "Figure 5",
        "Non-trivial separability is strongest at small N",
        tuple(
            Part(f"{name}_first_over_{other}", ">")
            for name in ("recall", "specificity")
            for other in ("middle", "last")
        ),
        "separability is strongest at small N",
        "separability is not strongest at small N",
    ),
    _by_thirds(
        "intermediate_weakest",
        "Figure 5",
        "Separability is weakest at intermediate N",
        tuple(
            Part(f"{name}_{end}_over_middle", ">") for name in ("recall", "specificity") for end in ("first", "last")
        ),
        "separability is weakest at intermediate N",
        "separability is not weakest at intermediate N",
    ),
    _by_thirds(
        "distinguishable_share_settles",
        "arXiv 2508.17821",
        "Of the selected keys, a share that settles at 0.70-0.85 can be told apart, being nearer than all others",
        tuple(
            part
            for third in ("middle", "last")
            for part in (
                Part(f"recall_{third}", ">=", DISTINGUISHABLE[0]),
                Part(f"recall_{third}", "<=", DISTINGUISHABLE[1]),
            )
        ),
        "the share of the selected keys that can be told apart settles at 0.70 to 0.85",
        "the share of the selected keys that can be told apart does not settle at 0.70 to 0.85",
        shown_by="distinguishable-share",
    ),
)
