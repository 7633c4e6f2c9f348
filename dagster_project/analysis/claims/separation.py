"""How heads separate what they select: levels over ln N, compared with chance, and their course with N (Figure 5)."""

from functools import partial

import numpy as np

from dagster_project.analysis.claims import queries
from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.records import LEAST_BEYOND, Claim, Measure, Part, Samples, beyond, require
from geometry.statistics.intervals import DIFFERENCE, SHARE
from reports.findings.claims import BEYOND

LABELS = {"recall": "Recall", "specificity": "specificity", "auc": "AUC"}
NULLS = {"random": "N keys at random", "shuffled": "shuffled value states"}
THIRDS = ("first", "middle", "last")
CURVES = ("recall", "specificity")
CONTRASTS = (("first", "middle"), ("last", "middle"), ("first", "last"))  # Thirds of ln N that are compared
DISTINGUISHABLE = (0.70, 0.85)  # Share of the selected keys that can be told apart, as reported for arXiv 2508.17821

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
            f"mean over heads of {LABELS[name]} above that of N keys at random, in the {one} third of ln N minus that "
            f"in the {less} third",
            f"{LABELS[name]} above random keys, {one} minus {less} third",
            DIFFERENCE,
        )
        for name in CURVES
        for one, less in CONTRASTS
    },
    **{
        f"{name}_over_{null}": Measure(
            f"mean over heads and ln N of {LABELS[name]} minus that of {NULLS[null]}", LABELS[name], DIFFERENCE
        )
        for null in NULLS
        for name in LABELS
    },
    **{
        difference: measure
        for null in NULLS
        for name, label in LABELS.items()
        for difference, measure in beyond(f"{name}_over_{null}", f"{label}, minus that of random weights").items()
    },
    **beyond("recall_middle", "middle third at the last query, minus that of random weights"),
    **beyond("recall_last", "last third at the last query, minus that of random weights"),
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
        "mean over heads of Recall at the last query minus that at the first, over ln N of the N that both have",
        "Recall at the same N",
        DIFFERENCE,
    ),
}
MEASURES |= queries.pair_measures(MEASURES, "recall_middle", "recall_last")


_LEVELS = f"""
WITH levels AS (
    SELECT
        sequence,
        count(recall) AS rows,
        {", ".join(f"avg({name}) AS {name}_level" for name in CURVES)},
        {", ".join(f"avg({name}_{third}) AS {name}_{third}" for name in CURVES for third in THIRDS)}
    FROM head_levels
    WHERE query = $query
    GROUP BY sequence
)
UNPIVOT levels ON COLUMNS(* EXCLUDE (sequence, rows)) INTO NAME measure VALUE value
"""
"""Means over heads of ``head_levels``, also by thirds of ln N."""

_POINTS = """
WITH points AS (
    SELECT
        *,
        ln(coalesce(lead(n) OVER neighbours * n, (n + 0.5) ** 2)
            / coalesce(lag(n) OVER neighbours * n, (n - 0.5) ** 2)) AS weight
    FROM separability_by_sequence
    WHERE query = $query AND n > 1
    WINDOW neighbours AS (PARTITION BY sequence, measure, null_model ORDER BY n)
)
"""
"""The N at which means over heads are compared with the nulls, each with its weight on a scale of ln N."""

_BESIDE_NULLS = f"""
{_POINTS},
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

_THIRDS = f"""
{_POINTS},
placed AS (
    SELECT *, least(floor(3 * ln(n / 1.5) / ln((max(n) OVER () + 0.5) / 1.5)), 2)::INTEGER AS third
    FROM points
    WHERE null_model = 'random_selection' AND measure IN {CURVES}
),
levels AS (
    SELECT sequence, measure, {list(THIRDS)}[1 + third] AS third,
        sum(weight * (value - null_value)) / sum(weight) AS level
    FROM placed
    GROUP BY ALL
)
SELECT sequence, measure || '_' || one.third || '_over_' || less.third AS measure, one.level - less.level AS value,
    (SELECT max(heads) FROM separability_model WHERE query = $query) AS rows
FROM levels AS one
JOIN levels AS less USING (sequence, measure)
WHERE (one.third, less.third) IN {CONTRASTS}
"""
"""Differences between thirds of ln N of what lies above random keys."""

_OTHERS = """
SELECT sequence, 'focused_share' AS measure, avg((10 * n_90 <= n_keys)::INT) AS value, count(*) AS rows
FROM attention_rows
WHERE query = $query
GROUP BY sequence
UNION ALL
SELECT sequence, 'recall_over_context', avg(last_recall - first_recall), count(*)
FROM (
    SELECT sequence, layer, head,
        sum(k_in / n / n) FILTER (WHERE query = $query) / sum(1 / n) FILTER (WHERE query = $query) AS last_recall,
        sum(k_in / n / n) FILTER (WHERE query < $query) / sum(1 / n) FILTER (WHERE query < $query) AS first_recall
    FROM selection_counts
    JOIN (SELECT layer, head, min(n_keys) AS keys FROM attention_rows GROUP BY layer, head) USING (layer, head)
    WHERE query IN ($query, (SELECT min(query) FROM attention_rows)) AND n BETWEEN 2 AND keys - 1
    GROUP BY sequence, layer, head
)
WHERE (SELECT min(query) FROM attention_rows) < $query
GROUP BY sequence
"""
"""Heads that give most weight to few keys, and Recall over context sizes."""


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    answers = [evidence.ask_means(statement) for statement in (_LEVELS, _BESIDE_NULLS, _THIRDS, _OTHERS)]
    every = queries.read_levels(evidence)
    known = ~np.isnan(every["recall_middle"]).any(axis=0)
    of_every = {
        f"recall_{third}{queries.EVERY}": Sample(every[f"recall_{third}"][:, known].mean(axis=1), int(known.sum()))
        for third in ("middle", "last")
        if known.any()
    }
    return {name: sample for of_answer in answers for name, sample in of_answer.items()} | of_every


def _list_parts(null: str) -> tuple[Part, ...]:
    """Above a null, and by more than random weights are."""
    return tuple(
        part
        for name in LABELS
        for part in (Part(f"{name}_over_{null}", ">"), Part(f"{name}_over_{null}{BEYOND}", ">=", LEAST_BEYOND))
    )


_over_nulls = partial(
    Claim,
    shown_by="chance-by-n",
    premise="nulls (analysis.nulls)",
    explain_gap=require("SELECT count(*) FROM separability_by_sequence", "the study computes no nulls"),
)

CLAIMS = (
    _over_nulls(
        "selection_sharpens",
        "Abstract",
        "Top-N selection sharpens separability",
        _list_parts("random"),
        "top-N selection separates better than N keys at random, and by more than with random weights",
        "top-N selection does not separate better than N keys at random by more than with random weights",
        premise="nulls (analysis.nulls), and a twin of random weights",
        null="N random keys, and random weights, which weigh their heaviest keys in s_N too: differences from both",
    ),
    _over_nulls(
        "values_sharpen",
        "Abstract",
        "Value states sharpen what the weights separate",
        _list_parts("shuffled"),
        "value states separate the selected keys better than shuffled ones do, and by more than with random weights",
        "value states do not separate the selected keys better than shuffled ones by more than with random weights",
        premise="nulls (analysis.nulls), and a twin of random weights",
        null="value states in random order, and random weights, whose values repeat with the tokens: differences from "
        "both",
    ),
    _over_nulls(
        "small_n_strongest",
        "Figure 5",
        "Non-trivial separability is strongest at small N",
        tuple(
            Part(f"{name}_first_over_{other}", ">")
            for name in ("recall", "specificity")
            for other in ("middle", "last")
        ),
        "separability above that of random keys is strongest at small N",
        "separability above that of random keys is not strongest at small N",
        null="N random keys, whose Recall and specificity fall with N too: differences from them",
    ),
    _over_nulls(
        "intermediate_weakest",
        "Figure 5",
        "Separability is weakest at intermediate N",
        tuple(
            Part(f"{name}_{end}_over_middle", ">") for name in ("recall", "specificity") for end in ("first", "last")
        ),
        "separability above that of random keys is weakest at intermediate N",
        "separability above that of random keys is not weakest at intermediate N",
        null="N random keys, whose Recall and specificity change with N too: differences from them",
    ),
    Claim(
        "distinguishable_share_settles",
        "arXiv 2508.17821",
        "Of the selected keys, a share that settles at 0.70-0.85 can be told apart, being nearer than all others",
        tuple(
            part
            for third in ("middle", "last")
            for part in (
                Part(f"recall_{third}", ">=", DISTINGUISHABLE[0]),
                Part(f"recall_{third}", "<=", DISTINGUISHABLE[1]),
                Part(f"recall_{third}{BEYOND}", ">=", LEAST_BEYOND),
            )
        ),
        "the share of the selected keys that can be told apart settles at 0.70 to 0.85, above that with random weights",
        "the share of the selected keys that can be told apart does not settle at 0.70 to 0.85, above that with random "
        "weights",
        shown_by="distinguishable-share",
        null="random weights, whose Recall is in the band in some architectures: above theirs",
        premise="an N in every third of ln N, and a twin of random weights",
        explain_gap=require(
            "SELECT count(recall_middle) FROM head_levels WHERE query = $query",
            "there are fewer than three values of N from 2 on",
        ),
    ),
)
