"""The sink's weight, and whether its similarity to other value states goes with Recall over heads (Figure 6)."""

from functools import partial
from math import ceil

import numpy as np

from dagster_project.analysis.claims import queries
from dagster_project.analysis.claims.evidence import Evidence, Sample
from dagster_project.analysis.claims.norms import SINK_TIMES, read_sink_times
from dagster_project.analysis.claims.records import Claim, Measure, Part, Samples, correlation
from geometry.arrays import F64
from geometry.statistics.arrangements import Association, associate
from geometry.statistics.intervals import DIFFERENCE, SHARE

LEAST_SHARE = 0.5  # Share of the heads that must have a sink for the study to say what sinks do

LEAST_ARRANGEMENTS = 1000
"""Ways to arrange KV groups within layers; with fewer, no association can be told from chance among many claims."""

WITHIN = "correlation over heads within layers of ρ_0 and"

MEASURES = {
    "sink_weight": Measure("mean over heads of the weight of the sink", "attention on the sink", SHARE),
    "rho_0_of_keys": Measure("mean over KV heads of ρ_0, the mean cosine of the sink's value state", "ρ₀", DIFFERENCE),
    "sink_and_recall": correlation(f"{WITHIN} the mean over ln N of Recall"),
    "sink_and_precision": correlation(f"{WITHIN} the mean over ln N of Precision above its floor"),
    "sink_and_r_min": correlation(f"{WITHIN} the mean over ln N of r_min over the norm of s_N"),
    **{
        f"sink_and_recall_{third}": correlation(
            f"{WITHIN} the mean of Recall over the {third} third of ln N", f"{third} third"
        )
        for third in ("first", "middle", "last")
    },
    "sink_and_recall_early": Measure(
        f"Fisher's z of the {WITHIN} the mean of Recall over the first third of ln N, minus that over the last two",
        "difference of Fisher’s z",
    ),
}
MEASURES |= queries.pair_measures(
    MEASURES,
    *("sink_and_recall", "sink_and_precision", "sink_and_recall_early"),
    *(f"sink_and_recall_{third}" for third in ("first", "middle", "last")),
)


def measure(evidence: Evidence) -> Samples:
    """The measures of a study by name."""
    means = evidence.ask_means(
        """
        SELECT sequence, 'sink_weight' AS measure, avg(sink_weight) AS value, count(sink_weight) AS rows
        FROM attention_rows
        WHERE query = $query
        GROUP BY sequence
        UNION ALL
        SELECT sequence, 'rho_0_of_keys', avg(rho_0), count(rho_0)
        FROM value_scales
        WHERE query = $query
        GROUP BY sequence
        """
    )
    levels = evidence.ask_heads(
        """
        SELECT sequence, layer, head, rho_0, precision_excess, r_min, COLUMNS('^recall')
        FROM head_levels
        JOIN heads USING (layer, head)
        JOIN value_scales USING (sequence, query, layer, kv_head)
        WHERE query = $query
        """
    )
    every = queries.read_levels(evidence)
    of_every = _measure_associations(evidence, {**every, "rho_0": levels["rho_0"]})
    at_last = _measure_associations(evidence, levels)
    return {**means, **at_last, **{f"{name}{queries.EVERY}": sample for name, sample in of_every.items()}}


def _measure_associations(evidence: Evidence, levels: dict[str, F64]) -> Samples:
    """Associations of ρ_0 with those levels of heads that are given, (sequence, head)."""
    later = (levels["recall_middle"] + levels["recall_last"]) / 2
    pairs = {
        "sink_and_recall": ("recall", None),
        "sink_and_precision": ("precision_excess", None),
        "sink_and_r_min": ("r_min", None),
        **{f"sink_and_recall_{third}": (f"recall_{third}", None) for third in ("first", "middle", "last")},
        "sink_and_recall_early": ("recall_first", later),
    }
    samples = {}
    for name, (level, less) in pairs.items():
        if level in levels:
            layer, group = evidence.heads["layer"], evidence.heads["group"]
            association = associate(levels[level], levels["rho_0"], layer, group, less=less)
            if not np.isnan(association.of_sequences).all():
                samples[name] = make_sample(association)
    return samples


def make_sample(association: Association) -> Sample:
    """The measure of an association."""
    return Sample(association.of_sequences, association.heads, arranged=association.arranged)


def _explain_no_sinks(evidence: Evidence) -> str | None:
    times = read_sink_times(evidence)
    sinks = int((times >= SINK_TIMES).sum())
    if np.isnan(times).all():
        return "no head has a ρ_0: a window hides the sink"
    if sinks < LEAST_SHARE * times.size:
        least = ceil(LEAST_SHARE * times.size)
        return (
            f"position 0 gets {SINK_TIMES:g} times the uniform share in {sinks} of {times.size} heads, and {least} are "
            "needed"
        )
    return explain_few_groups(evidence)


def explain_few_groups(evidence: Evidence) -> str | None:
    """Why associations over heads cannot be tested; None if they can."""
    layer, group = evidence.heads["layer"], evidence.heads["group"]
    counts = [len(np.unique(group[layer == number])) for number in np.unique(layer)]
    ways = float(np.prod([float(np.prod(np.arange(1, count + 1))) for count in counts]))
    if ways < LEAST_ARRANGEMENTS:
        said = f"{ways:.0f} way{'s' if ways != 1 else ''}"
        return f"KV groups can be arranged within layers in {said}, {LEAST_ARRANGEMENTS} are needed"
    return None


_association = partial(
    Claim,
    shown_by="sink-effect",
    null="KV groups in random places of their layers, and depth, which moves both: correlated within layers",
    least_rows=6,
    premise="a sink in half of the heads",
    explain_gap=_explain_no_sinks,
)

CLAIMS = (
    _association(
        name="sink_raises_recall",
        source="Figure 6",
        statement="Recall and the sink's similarity to the others rise together over heads, at every N",
        parts=tuple(Part(f"sink_and_recall_{third}", ">") for third in ("first", "middle", "last")),
        clause="Recall rises with sink similarity in every third of ln N",
        denial="Recall does not rise with sink similarity in every third of ln N",
    ),
    _association(
        name="sink_effect_peaks_early",
        source="Figure 6",
        statement="corr(R, ρ_0) over heads is largest at small N: about 3, in LLaMA 6",
        parts=(Part("sink_and_recall_early", ">"),),
        clause="sink similarity and Recall are more correlated at small N than beyond",
        denial="sink similarity and Recall are no more correlated at small N than beyond",
    ),
    _association(
        name="sink_predicts_recall",
        source="Section 4.1",
        statement="ρ_0 is strongly correlated with the average Recall across N",
        parts=(Part("sink_and_recall", ">=", 0.3),),
        clause="sink similarity predicts Recall",
        denial="sink similarity does not predict Recall",
    ),
    _association(
        name="sink_predicts_precision",
        source="Section 4.1",
        statement="The sink improves Precision when it aligns with the others",
        parts=(Part("sink_and_precision", ">"),),
        clause="sink similarity predicts Precision",
        denial="sink similarity does not predict Precision",
    ),
    _association(
        name="sink_widens_r_min",
        source="eq. 33",
        statement="r_min is smaller where ρ_0 is negative, which lowers Recall",
        parts=(Part("sink_and_r_min", ">"),),
        clause="the radius r_min grows with sink similarity",
        denial="the radius r_min does not grow with sink similarity",
    ),
)
