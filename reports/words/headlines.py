"""The top of a report: the numbers that stand large there, and in a few sentences what stands out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reports.words.numbers import NAMES, Row, count, known, number, percent, place, spans
from reports.words.separation import TRIVIAL
from reports.words.sink import apart, chance, sink_peak
from reports.words.taxonomy import OTHER


@dataclass(frozen=True)
class Headline:
    """One number that stands large at the top of a report."""

    label: str
    value: str
    note: str


def headlines(
    curves: Sequence[Row], heads: Sequence[Row], sinks: Sequence[Row], norms: Sequence[Row], n: int
) -> list[Headline]:
    """The numbers at the top of a report.

    From ``curves_by_n``, ``heads_at_n`` at ``n``, ``sink_by_head`` and ``norm_variation_by_head``.
    """
    return [
        _mean_at_n(heads, "precision", n),
        _mean_at_n(heads, "recall", n),
        _weakest(curves),
        _sink_weight(sinks),
        _lambda(norms) or _sink_norm(sinks),
    ]


def _mean_at_n(heads: Sequence[Row], metric: str, n: int) -> Headline:
    rows = known(heads, metric)
    if not rows:
        return Headline(NAMES[metric], "–", "no head attends to two keys")
    value = fmean(row[metric] for row in rows)
    return Headline(f"{NAMES[metric]} at N = {n}", number(value), f"mean of {count(len(rows), 'head')}")


def _weakest(curves: Sequence[Row]) -> Headline:
    rows = [row for row in curves if row["metric"] == "f_r_max"]
    if not rows:
        return Headline(f"Lowest {NAMES['f_r_max']}", "–", "no head attends to two keys")
    lowest = min(rows, key=lambda row: row["mean"])
    return Headline(f"Lowest {NAMES['f_r_max']}", f"N = {lowest['n']}", f"where its mean is {number(lowest['mean'])}")


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


def outstanding(
    curves: Sequence[Row],
    elbow: Row | None,
    sinks: Sequence[Row],
    learned: Sequence[Row],
    kinds: Sequence[Row],
    effect: Sequence[Row],
) -> list[str]:
    """What stands out, in at most five sentences; what cannot be said is left out.

    From ``curves_by_n``, ``elbow_of_model``, ``sink_by_head``, ``learned_sinks``, ``taxonomy_of_heads`` and
    ``sink_effect_by_n``.
    """
    told = (_separability(curves, elbow), _sink(sinks), _learned(learned), _kinds(kinds), _effect(effect))
    return [sentence for sentence in told if sentence]


def _separability(curves: Sequence[Row], elbow: Row | None) -> str:
    """Where heads separate best and worst."""
    if elbow is None or not curves:
        return ""
    if elbow["status"] == "trivial":
        return f"No N stands out: {TRIVIAL}."
    if elbow["status"] == "no_decline":
        return "No N stands out: after N = 2 separability does not fall."
    if elbow["elbow_n"] is None:
        return (
            f"Separability falls from N = 2 to N = {elbow['lowest_n']}, where it is lowest with "
            f"{number(elbow['lowest_separability'])}, without an elbow."
        )
    return (
        "Past the trivial N = 1, the elbow of how well heads tell what they select from the rest lies at "
        f"N = {elbow['elbow_n']} with separability {number(elbow['separability'])}; it is least at "
        f"N = {elbow['lowest_n']} with {number(elbow['lowest_separability'])}."
    )


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


def _effect(effect: Sequence[Row]) -> str:
    """Whether Recall rises or falls with ρ_0; both, each with its N, where the sign changes."""
    rows = known(effect, "correlation")
    if not rows:
        return ""
    sides = apart(rows)
    peaks = {side: sink_peak(found) for side, found in sides.items()}
    if not any(abs(peak["correlation"]) > chance(peak) for peak in peaks.values()):
        return "How alike the sink is to other value states says nothing of Recall beyond chance, at any N."
    whose, ways = "Heads whose sink is more alike to other value states have", {"above": "higher", "below": "lower"}
    if len(sides) == 1:
        ((side, peak),) = peaks.items()
        return (
            f"{whose} {ways[side]} Recall, most clearly at N = {peak['n']}, with a correlation of "
            f"{number(peak['correlation'])}."
        )
    order = [row["n"] for row in rows]
    told = [
        f"{ways[side]} Recall at N = {spans((row['n'] for row in sides[side]), order)} "
        f"(correlation {number(peaks[side]['correlation'])} at N = {peaks[side]['n']})"
        for side in sorted(sides, key=lambda side: int(sides[side][0]["n"]))
    ]
    return f"{whose} {' and '.join(told)}."
