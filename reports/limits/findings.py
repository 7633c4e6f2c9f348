"""Findings on the limits of selection by a softmax: distance from the rest, uniform weights, sensitivity, temperature.

The measurements of arXiv 2508.17821, known from its abstract and from accounts by others.
"""

from collections.abc import Sequence
from statistics import median

from reports.findings.claims import format_interval
from reports.findings.listings import format_own_interval
from reports.findings.numbers import (
    Row,
    count,
    drop_nulls,
    find_ends,
    format_spans,
    join_sentences,
    name_head,
    name_share,
    number,
    percent,
)

BEST_OF = {"auc": "AUC", "recall": "Recall"}
"""Measures by which a temperature is chosen."""

SHARES = {"effective_share": "effective keys", "n_90_share": "N₉₀"}
"""Numbers of keys that are drawn as shares of all keys; for uniform weights they are 1 and 0.9."""


def select_last_query(rows: Sequence[Row]) -> list[Row]:
    """The rows of the last query."""
    last = max(row["query"] for row in rows)
    return [row for row in rows if row["query"] == last]


def list_sizes(rows: Sequence[Row]) -> list[int]:
    """Numbers of keys of the queries that have rows, ascending."""
    return sorted({row["n_keys"] for row in rows})


def describe_distance(rows: Sequence[Row]) -> str:
    """The N at which the selected keys of the model are nearest to the rest (``distances_by_n``)."""
    mine = select_last_query(rows)
    least = min(mine, key=lambda row: row["relative_distance"])
    return (
        f"Among {mine[0]['n_keys']:,} keys, the selected ones are nearest to the rest at N = {least['n']:,}, at "
        f"{number(least['relative_distance'])} of the norm of the output (keys at random: "
        f"{number(least['relative_random_distance'])})."
    )


def describe_critical_n(heads: Sequence[Row]) -> str:
    """First N at which heads are as near to the rest as random keys, and the last (``critical_n``)."""
    known = drop_nulls(heads, "critical_n")
    if not known:
        return "In no head do the selected keys come as near to the rest as keys at random."
    ones = sum(row["critical_n"] == 1 for row in known)
    of = "" if len(known) == len(heads) else f" of the {len(known):,} that have one"
    text = (
        f"The first N at which the selected keys are no farther from the rest than N at random is "
        f"{number(median(row['critical_n'] for row in known))} in the median head{of}, and 1 in {ones:,} of "
        f"{count(len(heads), 'head')}."
    )
    until = drop_nulls(heads, "last_nearer_n")
    if not until:
        return text
    longest = max(until, key=lambda row: (row["last_nearer_n"], -row["layer"], -row["head"]))
    return join_sentences(
        text,
        "The last N, up to half of the keys, at which the selected keys are nearer is "
        f"{number(median(row['last_nearer_n'] for row in until))} in the median head, and "
        f"{longest['last_nearer_n']:,} in {name_head(longest)}.",
    )


def describe_distance_fits(fits: Sequence[Row]) -> str:
    """Exponents of the distance in N and in the number of keys (``limit_exponents_of_model``)."""
    mine = [row for row in fits if row["measure"] == "distance"]
    against_n = [row for row in mine if row["axis"] == "n"]
    clauses: list[str] = []
    if against_n:
        last = max(against_n, key=lambda row: row["query"])
        explained = "" if last["r2"] is None else f", which explains {percent(last['r2'])} of its variation"
        clauses.append(f"The distance scales as N to the power of {format_own_interval(last, 'exponent')}{explained}.")
    against_keys = [row for row in mine if row["axis"] == "n_keys"]
    if against_keys:
        least, most = find_ends(against_keys, "exponent")
        ends = [least] if least is most else [least, most]
        powers = " and ".join(f"{format_own_interval(row, 'exponent')} at N = {row['n']:,}" for row in ends)
        of = "between" if len(ends) > 1 else "of"
        clauses.append(f"At one N it scales as the number of keys to a power {of} {powers}.")
    return join_sentences(*clauses)


def describe_convergence(rows: Sequence[Row], fits: Sequence[Row]) -> str:
    """How close the weights are to uniform ones, and how this changes as keys are added (``convergence_by_query``).

    ``fits`` are ``limit_exponents_of_model``.
    """
    first, last = find_ends(rows, "n_keys")
    most = "up to " if any(row["least_keys"] < row["n_keys"] for row in rows) else ""
    if first["n_keys"] == last["n_keys"]:
        return (
            f"With {most}{last['n_keys']:,} keys, the mean head has effectively {percent(last['effective_share'])} of "
            f"its keys, and {percent(last['n_90_share'])} hold 90 % of its weight; for uniform weights: 100 % and 90 %."
        )
    slope = {row["measure"]: row for row in fits}.get("effective_share")
    way = "rise" if last["effective_share"] > first["effective_share"] else "fall"
    text = (
        f"From {most}{first['n_keys']:,} to {most}{last['n_keys']:,} keys, effective keys {way} from "
        f"{percent(first['effective_share'])} to {percent(last['effective_share'])} of all in the mean head; for "
        "weights that converge to uniform ones they would rise to 100 %."
    )
    return join_sentences(
        text,
        f"Their share scales as the number of keys to the power of {format_own_interval(slope, 'exponent')}."
        if slope
        else "",
    )


def describe_head_convergence(heads: Sequence[Row]) -> str:
    """The heads nearest to uniform weights and farthest from them (``convergence``)."""
    least, most = find_ends(heads, "effective_share")
    return (
        f"Nearest to uniform is {name_head(most)}, with effectively {percent(most['effective_share'])} of its "
        f"{most['n_keys']:,} keys; farthest is {name_head(least)}, with {percent(least['effective_share'])}."
    )


def describe_distinguishable(rows: Sequence[Row]) -> str:
    """The N at which the share is within the reported band, and in how many heads (``distinguishable_by_n``)."""
    low, high = rows[0]["band_low"], rows[0]["band_high"]
    within = [row["n"] for row in rows if row["within_band"]]
    last, most = rows[-1], max(rows, key=lambda row: row["heads_within"])
    held = f"at N = {format_spans(within, [row['n'] for row in rows])}" if within else ""
    return join_sentences(
        f"The model’s share lies between {low:.2f} and {high:.2f} {held}, and is {number(last['share'])} at the last "
        f"N, {last['n']:,}."
        if held
        else f"The model’s share lies between {low:.2f} and {high:.2f} at none of the N shown.",
        f"That band holds the most heads at N = {most['n']:,}: "
        f"{name_share(most['heads_within'], most['heads'], 'head')}."
        if most["heads_within"]
        else "It holds no head at any of these N.",
    )


def describe_sensitivity(rows: Sequence[Row]) -> str:
    """Whether the bounds of the Jacobian's norm hold, and how close it comes (``sensitivity_bounds_model``)."""
    mine = min(rows, key=lambda row: (abs(row["temperature"] - 1), row["temperature"]))
    broken = [row for row in rows if row["reported_holds"] < 1]
    text = (
        f"At T = {number(mine['temperature'])} the mean norm is {number(mine['spectral_norm'])}, "
        f"{percent(mine['closeness'])} of 1/(2T), which bounds all of them; the largest reaches "
        f"{percent(mine['closest'])}."
    )
    if not broken:
        return join_sentences(text, "The bound as reported, the lesser of 1/(4T) and √2, holds at every T.")
    worst = min(broken, key=lambda row: row["reported_holds"])
    exceeded = name_share(
        1 - worst["reported_holds"], worst["rows"], "pair of head and sequence", "pairs of head and sequence"
    )
    return join_sentences(
        text,
        f"The bound as reported, the lesser of 1/(4T) and √2, is exceeded in {exceeded} at "
        f"T = {number(worst['temperature'])}: 1/(4T) bounds the Jacobian’s entries, not its norm.",
    )


def describe_best_temperatures(rows: Sequence[Row]) -> str:
    """The temperature at which heads would separate best (``best_temperatures``)."""
    clauses = []
    for measure, name in BEST_OF.items():
        mine = [row for row in rows if row["measure"] == measure]
        if mine:
            most, heads = max(mine, key=lambda row: row["heads"]), sum(row["heads"] for row in mine)
            clear = sum(row["gain_above_0"] for row in mine if row["temperature"] != 1)
            clauses.append(
                f"{name} at N = {max(row['n'] or 0 for row in mine):,} is most often largest at "
                f"T = {number(most['temperature'])}, in {most['heads']:,} of {count(heads, 'head')}; it is larger at "
                f"another T than at T = 1, with an interval above 0, in {f'{clear:,}' if clear else 'none'}."
            )
    return join_sentences(
        *clauses,
        "The best of several temperatures exceeds that margin more often than a single one would." if clauses else "",
    )


CONTRASTS = {"recall_less_n_90": "N by Recall", "elbow_less_n_90": "N by elbow"}
"""Measures: the mean difference of loss from budgets in proportion to the keys of 90 % of the weight."""


def describe_key_budgets(rows: Sequence[Row], measures: Sequence[Row]) -> str:
    """How many keys to keep, and how geometry's budgets compare (``key_budgets_of_model``, ``measures``)."""
    if not rows:
        return ""
    (row,) = rows
    kept = format_interval(row, "n_90")
    ends = [row["fewest"], row["most"]]
    windowed = any(end["n_keys"] != row["n_keys"] for end in ends)
    mean = " that a head has on average" if windowed else ""
    text = f"To keep 90 % of its weight, the mean head keeps {kept} of the {number(row['n_keys'])} keys{mean}"
    if row["heads"] > 1:
        keys = [f" of {number(end['n_keys'])}" if windowed else "" for end in ends]
        heads = (f"{format_interval(end, 'n_90')}{of} in {name_head(end)}" for end, of in zip(ends, keys, strict=True))
        text += f", from {' to '.join(heads)}"
    known = {measure["measure"]: measure for measure in measures if measure["value"] is not None}
    compared = [
        f"with {words} {format_own_interval(known[name], 'value')}"
        for name, words in CONTRASTS.items()
        if name in known
    ]
    differences = f"At equal cost the loss, minus that with N in proportion to these, is {' and '.join(compared)} nats."
    return join_sentences(f"{text}.", differences if compared else "")
