"""The top of a report: the numbers that stand large there, and in a few sentences what stands out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reports.findings.claims import claims as verdict_counts
from reports.findings.claims import said
from reports.findings.numbers import NAMES, Row, count, known, number, percent, place
from reports.findings.taxonomy import OTHER


@dataclass(frozen=True)
class Headline:
    """One number that stands large at the top of a report."""

    label: str
    value: str
    note: str


def headlines(
    claims: Sequence[Row], heads: Sequence[Row], sinks: Sequence[Row], norms: Sequence[Row], n: int
) -> list[Headline]:
    """The numbers at the top of a report.

    From ``claims``, ``heads_at_n`` at ``n``, ``sink_by_head`` and ``norm_variation_by_head``.
    """
    return [
        _mean_at_n(heads, "precision", n),
        _mean_at_n(heads, "recall", n),
        _findings(claims),
        _sink_weight(sinks),
        _lambda(norms) or _sink_norm(sinks),
    ]


def _mean_at_n(heads: Sequence[Row], metric: str, n: int) -> Headline:
    rows = known(heads, metric)
    if not rows:
        return Headline(NAMES[metric], "–", "no head attends to two keys")
    value = fmean(row[metric] for row in rows)
    return Headline(f"{NAMES[metric]} at N = {n}", number(value), f"mean of {count(len(rows), 'head')}")


def _findings(claims: Sequence[Row]) -> Headline:
    """How many claims are supported here and not by random weights."""
    label = "Findings beyond random weights"
    supported = [row for row in claims if row["verdict"] == "supported"]
    if supported and all(row["finding"] is None for row in supported):
        return Headline(label, "–", "nothing is known of random weights")
    findings = sum(row["finding"] is True for row in supported)
    return Headline(label, f"{findings:,}", f"of {count(len(claims), 'claim')} of the paper")


def _sink_weight(sinks: Sequence[Row]) -> Headline:
    rows = known(sinks, "sink_weight")
    if not rows:
        return Headline("Attention on the sink", "–", "hidden by a sliding window")
    weight, uniform = fmean(row["sink_weight"] for row in rows), fmean(row["uniform_weight"] for row in rows)
    return Headline("Attention on the sink", percent(weight), f"{number(weight / uniform)} times the uniform share")


def _lambda(norms: Sequence[Row]) -> Headline | None:
    """λ over KV heads; ``None`` if the study has none."""
    rows = known(norms, "lambda_sink")
    if not rows:
        return None
    value = number(median(row["lambda_sink"] for row in rows))
    return Headline(
        "Value norm of the sink", f"{value} ×", f"of the others: λ, median of {count(len(rows), 'KV head')}"
    )


def _sink_norm(sinks: Sequence[Row]) -> Headline:
    ratios = {(row["layer"], row["kv_head"]): row["norm_ratio"] for row in known(sinks, "norm_ratio")}
    if not ratios:
        return Headline("Value norm of the sink", "–", "no other position to compare it with")
    note = f"of later positions, median of {count(len(ratios), 'KV head')}"
    return Headline("Value norm of the sink", f"{number(median(ratios.values()))} ×", note)


def outstanding(claims: Sequence[Row], sinks: Sequence[Row], learned: Sequence[Row], kinds: Sequence[Row]) -> list[str]:
    """What stands out, in a few sentences; what cannot be said is left out.

    From ``claims``, ``sink_by_head``, ``learned_sinks`` and ``taxonomy_of_heads``. What follows for the paper comes
    from the verdicts alone; the other sentences are about what was measured.
    """
    told = (said(claims, *SEPARATION), _sink(sinks), _learned(learned), said(claims, *SINK), _kinds(kinds))
    return [*(sentence for sentence in told if sentence), verdict_counts(claims)]


SEPARATION = ("selection_sharpens", "values_sharpen", "small_n_elbow", "intermediate_weakest", "premise_holds")
"""What a summary says of separation."""

SINK = ("sink_predicts_recall", "sink_predicts_precision")
"""What a summary says of the sink's similarity."""


def _sink(sinks: Sequence[Row]) -> str:
    rows = known(sinks, "sink_weight")
    if not rows:
        return "A sliding window hides the sink from the last query in every head."
    high = max(rows, key=lambda row: row["sink_weight"])
    heavy = sum(row["sink_weight"] > 0.5 for row in rows)
    return (
        f"The first token takes more than half of the attention in {heavy} of {count(len(rows), 'head')}, and most, "
        f"{percent(high['sink_weight'])}, in {place(high)}."
    )


def _learned(sinks: Sequence[Row]) -> str:
    """How much learned sinks take from the keys; nothing where no head has one."""
    rows = [row for row in known(sinks, "mean_learned_sink") if row["mean_learned_sink"] > 0]
    if not rows:
        return ""
    mean, have = fmean(row["mean_learned_sink"] for row in rows), "has" if len(rows) == 1 else "have"
    return (
        f"{len(rows):,} of {count(len(sinks), 'head')} {have} a learned sink, which is no key and takes "
        f"{percent(mean)} of the attention on average; the weights of their keys sum to the rest."
    )


def _kinds(heads: Sequence[Row]) -> str:
    """The commonest label of heads."""
    labels = Counter(row["label"] for row in heads)
    if not labels:
        return ""
    label, most = max(labels.items(), key=lambda item: item[1])
    layers = [row["layer"] for row in heads if row["label"] == label]
    where = f"layer {layers[0]}" if min(layers) == max(layers) else f"layers {min(layers)} to {max(layers)}"
    others = labels[OTHER]
    if label == OTHER:
        return f"Most heads are of no kind: {most} of {count(len(heads), 'head')}, in {where}, meet no rule."
    return (
        f"The commonest kind of head is {label}: {most} of {count(len(heads), 'head')}, in {where}; {others} of all "
        f"heads {'meets' if others == 1 else 'meet'} no rule."
    )
