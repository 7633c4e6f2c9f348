"""How well a softmax can select at all: against N, the number of keys, and the temperature.

A figure without rows is left out.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, floor, log10
from statistics import median

import altair as alt

from reports.elements import (
    DASHES,
    ENDS,
    HEAD,
    colour_bars,
    count_axis,
    draw_dotted_lines,
    keep_columns,
    layer_axis,
    layer_chart,
    level,
    log_axis,
    n_axis,
    points,
    style_line,
    tooltips,
)
from reports.figures import Figure, Section, Source
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

BEST_OF = {"auc": "AUC", "recall": "Recall"}  # Measures by which a temperature is chosen

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


DISTANCES = {"relative_distance": "largest weights", "relative_random_distance": "random keys", "fitted": "power of N"}
"""Lines of the chart of distances, as its legend names them."""

NORMS = {"spectral_norm": "mean norm", "quarter": "1/(4T), reported", "half": "1/(2T)"}
"""Lines of the chart of sensitivity."""

LOWEST = 1e-4  # Lower end of the band of norms: a norm of 0 has no place on a log axis


def draw_distances(rows: Sequence[Row]) -> alt.LayerChart:
    """Distance of selected and of random keys from the rest against N, at the last query (``distances_by_n``)."""
    last_rows = select_last_query(rows)
    last = max(row["n"] for row in last_rows)
    y = partial(alt.Y, title="Distance over the output’s norm (ratio)", scale=alt.Scale(zero=True))
    base = alt.Chart().encode(x=n_axis(last))
    shown = {"relative_distance": "Distance", **ENDS}
    shown |= {"relative_random_distance": "Random keys", "fitted": "Fit"}
    tooltip = tooltips(".3~g", n="N", **shown)
    drawn = {column: name for column, name in DISTANCES.items() if drop_nulls(last_rows, column)}
    return layer_chart(
        last_rows,
        f"Against N, with {last_rows[0]['n_keys']:,} keys",
        f"Line chart against N on a log axis. {describe_distance(last_rows)}",
        *(
            [base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q"))]
            if drop_nulls(last_rows, "low")
            else []
        ),
        *(
            style_line(base.mark_line(point=last == 1).encode(y=y(f"{column}:Q")), list(drawn.values()), name)
            for column, name in reversed(drawn.items())
        ),
        points(base.encode(y=y("relative_distance:Q"), tooltip=tooltip), always=last == 1),
    )


def draw_distance_ratios(rows: Sequence[Row]) -> alt.LayerChart:
    """The same distance over that of random keys, a line for each size of the context (``distances_by_n``)."""
    known = drop_nulls(rows, "beside_random")
    sizes = list_sizes(known)
    scale = alt.Scale(domain=sizes)
    legend = alt.Legend(orient="top", title="Keys", format=",d")
    dashes = [list(DASHES[index % len(DASHES)]) for index in range(len(sizes))]
    y = alt.Y("beside_random:Q", title="Distance over that of random keys (ratio)", scale=alt.Scale(zero=False))
    base = alt.Chart().encode(
        x=n_axis(max(row["n"] for row in known)), y=y, color=alt.Color("n_keys:O", scale=scale, legend=legend)
    )
    dash = alt.StrokeDash("n_keys:O", scale=alt.Scale(domain=sizes, range=dashes), legend=legend)
    tooltip = tooltips(".3~g", n="N", n_keys="Keys", beside_random="Distance over that of random keys")
    return layer_chart(
        known,
        "Relative to random keys",
        "Line chart against N on a log axis, one line for each number of keys; below 1 the selected keys are nearer to "
        "the rest than random keys.",
        level(1, "as random"),
        base.mark_line().encode(strokeDash=dash),
        points(base.encode(tooltip=tooltip)),
    )


def draw_convergence(rows: Sequence[Row]) -> alt.LayerChart:
    """Effective keys and N_90 over the number of keys, mean and spread over heads (``convergence_by_query``)."""
    x = log_axis("n_keys", "Number of keys (log scale)", list_sizes(rows), padding=14)
    y = partial(alt.Y, title="Share of the keys (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"effective_share": "Effective keys over all", "effective_share_p10": "10 % of heads below"}
    shown |= {"effective_share_p90": "10 % of heads above", "n_90_share": "N₉₀ over all"}
    tooltip = tooltips(".3~g", n_keys="Keys", **shown)
    base = alt.Chart().encode(x=x, tooltip=tooltip)
    return layer_chart(
        rows,
        "Against the number of keys",
        f"Line chart against the number of keys on a log axis. {describe_convergence(rows, [])}",
        level(1, "uniform"),
        base.mark_area(style="band").encode(y=y("effective_share_p10:Q"), y2=alt.Y2("effective_share_p90:Q")),
        *draw_dotted_lines(base, y, SHARES),
    )


def draw_sensitivity(rows: Sequence[Row]) -> alt.LayerChart:
    """Spectral norm of the softmax Jacobian against the temperature, with bounds (``sensitivity_bounds_model``)."""
    floored = [{**row, "lowest": max(row["norm_p10"], LOWEST)} for row in rows]
    powers = range(
        floor(log10(min(row["lowest"] for row in floored))), 1 + ceil(log10(max(row["half"] for row in floored)))
    )
    y = partial(
        alt.Y,
        title="Spectral norm (log scale)",
        scale=alt.Scale(type="log", nice=False, domain=[10.0 ** powers[0], 10.0 ** powers[-1]]),
        axis=alt.Axis(values=[10.0**power for power in powers], format=".4~g"),
    )
    shown = {"spectral_norm": "Mean norm", "norm_p10": "10 % of norms below", "norm_p90": "10 % of norms above"}
    shown |= {"norm_max": "Largest norm", "quarter": "1/(4T)", "half": "1/(2T)"}
    shown |= {"reported_holds": "Share of norms within the reported bound"}
    temperatures = sorted(row["temperature"] for row in floored)
    x = log_axis("temperature", "Temperature T (log scale)", temperatures, written=".3~g", padding=14)
    base = alt.Chart().encode(x=x, tooltip=tooltips(".3~g", temperature="T", **shown))
    return layer_chart(
        floored,
        "Sensitivity of weights to their logits",
        f"Line chart against the temperature, both axes logarithmic. {describe_sensitivity(floored)}",
        base.mark_area(style="band").encode(y=y("lowest:Q"), y2=alt.Y2("norm_p90:Q")),
        *(
            style_line(mark.encode(y=y(f"{column}:Q")), list(NORMS.values()), name)
            for column, name in NORMS.items()
            for mark in (
                base.mark_line(),
                *([base.mark_point(filled=True, size=50)] if column == "spectral_norm" else []),
            )
        ),
    )


def draw_best_temperatures(rows: Sequence[Row]) -> alt.LayerChart:
    """Number of heads whose AUC, or Recall, is largest at each temperature (``best_temperatures``)."""
    labelled = [{**row, "line": BEST_OF[row["measure"]]} for row in rows]
    labels = list(BEST_OF.values())
    tooltip = tooltips(
        ".3~g",
        temperature="T",
        line="Measure",
        heads="Heads",
        gain_above_0="Heads whose gain has an interval above 0",
        mean_gain="Mean gain",
    )
    bars = alt.Chart().mark_bar()
    return layer_chart(
        labelled,
        f"Best temperature of heads, N = {max(row['n'] or 0 for row in labelled)}",
        f"Bars of the number of heads by the temperature that is best. {describe_best_temperatures(labelled)}",
        bars.encode(
            x=alt.X("temperature:O", title="Temperature T").axis(labelAngle=0, grid=False, format=".3~g"),
            xOffset=alt.XOffset("line:N", sort=labels),
            y=alt.Y("heads:Q", **count_axis("Heads", max(row["heads"] for row in labelled))),
            color=colour_bars("line", labels),
            tooltip=tooltip,
        ),
    )


def build_section(source: Source) -> Section:
    """The limits of selection; no figures for a study that was landed without them."""
    drawn = (_build_distances, _build_convergence, _build_distinguishable, _build_temperature)
    return Section(
        "limits",
        "Limits of selection",
        "How well can a softmax select at all? These are the questions of the paper’s predecessor (arXiv 2508.17821), "
        "which is known here from its abstract and from accounts by others.",
        tuple(figure for draw in drawn for figure in draw(source)),
        appendix=True,
    )


def _build_distances(source: Source) -> Iterator[Figure]:
    answer = source.ask_study("distances_by_n")
    rows = drop_nulls(answer.rows(), "relative_distance")  # unknown if all value states are 0
    if not rows:
        return
    several = len(list_sizes(drop_nulls(rows, "beside_random"))) > 1
    yield Figure(
        "distance-rest",
        "Distance of the selected keys from the rest",
        answer,
        join_sentences(
            describe_distance(rows),
            describe_critical_n(source.ask_query("critical_n").rows()),
            describe_distance_fits(source.ask_study("limit_exponents_of_model").rows()),
        ),
        "Distance of s_N from the sum of the weighted value states left out, over the norm of the sum of all; mean "
        "over heads and sequences; band: 95 % interval over sequences. Random keys: root mean square over all "
        "selections of N keys, in closed form. At N = n the distance is the norm itself. The paper draws no such "
        "figure.",
        charts=(draw_distances(answer.rows()), *([draw_distance_ratios(answer.rows())] if several else [])),
        tab="Distance",
        titled=True,
    )


def _build_convergence(source: Source) -> Iterator[Figure]:
    answer, heads = source.ask_study("convergence_by_query"), source.ask_query("convergence").rows()
    rows = answer.rows()
    if not rows or not heads:
        return
    several = len(list_sizes(rows)) > 1
    least, most = find_ends(heads, "effective_share")
    told = (
        f"Nearest to uniform is {name_head(most)}, with effectively {percent(most['effective_share'])} of its "
        f"{most['n_keys']:,} keys; farthest is {name_head(least)}, with {percent(least['effective_share'])}."
    )
    y = alt.Y("effective_share:Q", title="Effective keys over all (ratio)", scale=alt.Scale(domain=[0, 1]))
    shown = {"effective_share": "Effective keys over all", "n_90_share": "N₉₀ over all"}
    shown |= {"largest_deviation": "Largest |p − 1/n|"}
    tooltip = [*HEAD, *tooltips(".3~g", **shown)]
    chart = layer_chart(
        keep_columns(heads, "layer", "head", "n_keys", *shown),
        "Head by head",
        f"Dot plot, a dot for each head, layer by layer. {told}",
        level(1, "uniform"),
        alt.Chart().mark_point(style="head", filled=True, size=45).encode(x=layer_axis(heads), y=y, tooltip=tooltip),
    )
    yield Figure(
        "convergence-uniform",
        "Convergence to uniform weights",
        answer,
        join_sentences(
            describe_convergence(rows, source.ask_study("limit_exponents_of_model").rows()),
            told,
            describe_key_budgets(source.ask_query("key_budgets_of_model").rows(), source.ask_study("measures").rows()),
        ),
        "Effective keys: exponential of the entropy of the weights. N₉₀: smallest number of keys that hold 90 % of the "
        "weight. Both are divided by the number of keys and averaged over sequences; band: 10 % to 90 % quantile of "
        "heads. The paper draws no such figure.",
        charts=(*([draw_convergence(rows)] if several else []), chart),
        tab="Uniform weights",
        titled=True,
    )


def _build_distinguishable(source: Source) -> Iterator[Figure]:
    answer = source.ask_query("distinguishable_by_n")
    rows = answer.rows()
    if not rows:
        return
    told = describe_distinguishable(rows)
    last, low, high = rows[-1]["n"], rows[0]["band_low"], rows[0]["band_high"]
    y = partial(alt.Y, title="Share told apart (Recall, ratio)", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart().encode(x=n_axis(last))
    shown = {"share": "Share told apart", **ENDS, "p10": "10 % of heads below"}
    shown |= {"p90": "10 % of heads above", "heads_within": "Share of the heads within the band"}
    tooltip = tooltips(".3~g", n="N", **shown)
    chart = layer_chart(
        rows,
        "Share of the selected keys that can be told apart",
        f"Line chart against N on a log axis, with the reported band. {told}",
        level(low, f"{low:.2f}"),
        level(high, f"{high:.2f}"),
        base.mark_area(style="band").encode(y=y("p10:Q"), y2=alt.Y2("p90:Q")),
        *([base.mark_area(style="band").encode(y=y("low:Q"), y2=alt.Y2("high:Q"))] if drop_nulls(rows, "low") else []),
        base.mark_line(style="mean").encode(y=y("share:Q")),
        points(base.encode(y=y("share:Q"), tooltip=tooltip), always=len(rows) == 1),
    )
    yield Figure(
        "distinguishable-share",
        "Share of the selected keys that can be told apart",
        answer,
        told,
        "Share of the selected keys that are nearer to s_N than every key left out, R(rₘᵢₙ, N), from N = 2 on, since "
        "at N = 1 it is 1 by definition. Bands: 95 % interval over sequences, and 10 % to 90 % quantile of heads. "
        "Horizontal lines: range reported for GPT-2. The paper draws Recall without such a range.",
        charts=(chart,),
        tab="Told apart",
        broad=True,
    )


def _build_temperature(source: Source) -> Iterator[Figure]:
    answer = source.ask_query("sensitivity_bounds_model")
    rows, best = answer.rows(), source.ask_query("best_temperatures", n=max(source.n, 1)).rows()
    if not rows:
        return
    known = len(rows) > 1 and bool(drop_nulls(best, "n"))  # the best of several
    yield Figure(
        "temperature",
        "Sensitivity and temperature",
        answer,
        join_sentences(describe_sensitivity(rows), describe_best_temperatures(best) if known else ""),
        "Exact spectral norm of the Jacobian of softmax(l/T), for the weights that the same logits l give at T; band: "
        "10 % to 90 % quantile of heads and sequences. Bars: number of heads by the T of the grid at which their AUC, "
        "or Recall, is largest. The paper uses the weights as they are.",
        charts=(draw_sensitivity(rows), *([draw_best_temperatures(best)] if known else [])),
        tab="Temperature",
        titled=True,
    )
