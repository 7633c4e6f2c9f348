"""Findings on a family of studies: what appears over its members, and what differs between them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from geometry.statistics.verdicts import correct_holm
from reports.findings.listings import DASH, Listing, format_own_interval, tabulate
from reports.findings.numbers import Row, count, format_with_interval, join_sentences, name_head, number, percent

NAMES = {
    "loss": "loss, nats a token",
    "sink_weight": "attention on the sink",
    "top_previous": "top key is the previous position",
    "top_induction": "top key follows an earlier copy",
    "pattern_sink": "weight on the sink, all queries",
    "pattern_previous": "weight on the previous token",
    "pattern_local": "weight on the last eight keys",
    "pattern_duplicate": "weight on earlier copies",
    "pattern_induction": "weight on keys after earlier copies",
    "effective_keys": "effective keys",
    "recall[4]": "Recall at N = 4",
    "retriever_share": "Retriever",
    "mixer_share": "Mixer",
    "reset_share": "Reset",
    "other_share": "Other",
    "recall_over_random": "Recall beyond random keys",
    "recall_over_shuffled": "Recall beyond shuffled values",
    "auc_over_random": "AUC beyond random keys",
    "auc_over_shuffled": "AUC beyond shuffled values",
}
"""Quantities as pages name them."""


def name_quantity(quantity: str) -> str:
    """A quantity as pages name it."""
    return NAMES.get(quantity, quantity)


def title_quantity(quantity: str) -> str:
    """A quantity as the title of a figure."""
    name = name_quantity(quantity)
    return name[0].upper() + name[1:]


def title_axis(rows: Sequence[Row]) -> str:
    """What the studies of rows with an ``axis`` differ in, as the title of an axis."""
    axis = (rows[0].get("axis") if rows else None) or "study"
    return axis[0].upper() + axis[1:].replace("_", " ")


def describe_members(rows: Sequence[Row]) -> str:
    """How many members there are and which are missing (``family_members``)."""
    axis, missing = rows[0]["axis"] if rows else "", [row["value"] for row in rows if not row["landed"]]
    apart = [row["value"] for row in rows if row["landed"] and not row["alike"]]
    return join_sentences(
        f"{count(len(rows), 'study', 'studies')}{f' by {axis}' if axis else ''}.",
        f"Without results: {', '.join(missing)}." if missing else "",
        f"Differences from {', '.join(apart)} are not paired, since the tokens differ." if apart else "",
    )


def describe_untested(claims: Collection[str]) -> str:
    """How many claims are left out, since no study can test them; empty if none is."""
    verb = "is" if len(claims) == 1 else "are"
    return f"{count(len(claims), 'claim')} that no study can test {verb} left out." if claims else ""


def describe_onsets(rows: Sequence[Row], quantity: str) -> str:
    """Which heads come to exceed the threshold of a quantity, and between which members (``family_onsets``)."""
    of_heads = [row for row in rows if row["quantity"] == quantity and row["head"] is not None]
    own = [row for row in of_heads if row["state"] == "appears"]
    waiting = len(of_heads) - len(own)
    undecided = f"Of {count(waiting, 'other head' if own else 'head')} it is undecided." if waiting else ""
    if not own:
        none = f"No head is found to come to exceed the threshold of {name_quantity(quantity)} over these studies."
        return join_sentences(none, undecided)
    first = own[0]
    between = f"between {first['last_below']} and {first['first_above']}"
    rows_of = (
        f"{count(len(own), 'head')} {'comes' if len(own) == 1 else 'come'} to exceed {first['threshold']:g} "
        f"({name_quantity(quantity)}), first {name_head(first)}, {between}."
    )
    return join_sentences(rows_of, undecided)


LARGEST = 3
"""Largest number of differences that are told at the top of a page."""

LEVEL = 0.05
"""Probability that any difference is told if nothing differs (Holm)."""


def tell_first(differences: Sequence[Row], trends: Sequence[Row], claims: Sequence[Row]) -> list[str]:
    """What a page begins with: the largest differences, and the verdicts that differ.

    From ``family_differences``, ``family_of_model`` and ``family_claims``.
    """
    values = {(row["study"], row["quantity"]): row for row in trends}
    apart = find_apart(differences, trends)
    told = [_describe_difference(row, values) for row in apart[:LARGEST]]
    tested = sum(row["quantity"] in NAMES and row["difference_low"] is not None for row in differences)
    if tested:
        labels = {row["study"]: row["label"] for row in trends}
        first, last = (labels.get(name, name) for name in (differences[0][role] for role in ("reference", "study")))
        told.append(
            f"Of {count(tested, 'quantity', 'quantities')} of the model, {len(apart)} "
            f"{'differs' if len(apart) == 1 else 'differ'} between {first} and {last} with an error of 5 % for all "
            "of them (Holm)."
        )
    return [*told, *_describe_verdicts(claims)]


def find_apart(differences: Sequence[Row], trends: Sequence[Row]) -> list[Row]:
    """The named quantities that differ, corrected for their number (Holm); the clearest first."""
    from scipy import stats  # slow to import, and only families need it

    sequences = {row["study"]: row["sequences"] for row in trends if row["sequences"]}
    known = [row for row in differences if row["quantity"] in NAMES and row["difference_low"] is not None]
    statistics = []
    for row in known:
        freedom = max(1, min(sequences.get(row[role], 2) for role in ("study", "reference")) - 1)
        half = (row["difference_high"] - row["difference_low"]) / 2
        error = half / float(stats.t.ppf(0.975, freedom))
        statistics.append(
            (abs(row["difference"]) / error if error else float("inf") * bool(row["difference"]), freedom)
        )
    p = correct_holm(2 * float(stats.t.sf(statistic, freedom)) for statistic, freedom in statistics)
    apart = [(statistic, row) for (statistic, _), row, one in zip(statistics, known, p, strict=True) if one <= LEVEL]
    return [row for _, row in sorted(apart, key=lambda pair: -pair[0])]


def _describe_difference(row: Row, values: dict[tuple[str, str], Row]) -> str:
    before, after = (values[row[role], row["quantity"]] for role in ("reference", "study"))
    by, _, ends = format_with_interval(row["difference"], row["difference_low"], row["difference_high"]).partition(" (")
    return (
        f"{title_quantity(row['quantity'])}: {number(before['value'])} in {before['label']}, "
        f"{number(after['value'])} in {after['label']} (difference {by}, {ends}."
    )


def _describe_verdicts(claims: Sequence[Row]) -> Iterator[str]:
    """The differing claim that is decided in most studies, and how many others differ (``family_claims``)."""
    decided = []
    for _, rows in groupby(claims, key=lambda row: row["claim"]):
        of_claim = [row for row in rows if row["verdict"] in {"supported", "not supported"}]
        if len({row["verdict"] for row in of_claim}) > 1:
            decided.append(of_claim)
    if not decided:
        yield "No claim of the paper is supported in one study and not supported in another."
        return
    most = max(decided, key=len)
    yes, no = (
        [row["label"] for row in most if row["verdict"] == verdict] for verdict in ("supported", "not supported")
    )
    others = (
        f"; {count(len(decided) - 1, 'other claim')} differ{'s' if len(decided) == 2 else ''} too"
        if decided[1:]
        else ""
    )
    yield f"‘{most[0]['statement']}’ is supported in {', '.join(yes)}, and not in {', '.join(no)}{others}."


def describe_differences(rows: Sequence[Row], trends: Sequence[Row]) -> str:
    """How many quantities of the model differ between the last study and the first (``family_differences``)."""
    known = [row for row in rows if row["difference_low"] is not None]
    if not known:
        return "No quantity has an interval of its difference."
    named = find_apart(rows, trends)
    return f"{len(named)} of the differences shown exclude 0 after Holm’s correction for their number."


def describe_overlaps(rows: Sequence[Row]) -> str:
    """How many heads of the last member select other keys than the member before (``family_overlaps``)."""
    if not rows:
        return ""
    lowest = next(row for row in rows if row["study"] == rows[-1]["study"])
    return (
        f"{lowest['heads_changed']} of {count(lowest['heads'], 'head')} of {lowest['study']} select other keys than "
        f"those of {lowest['reference']} at N = {lowest['n']:,} in some sequence; least shared: "
        f"{percent(lowest['shared'])} in {name_head(lowest)}."
    )


def tabulate_members(rows: Sequence[Row], links: Mapping[str, str]) -> Listing:
    """The members of a family (``family_members``), and whether each has landed and has a page."""

    def describe_results(row: Row) -> str:
        return "missing" if not row["landed"] else "page" if row["study"] in links else "tables"

    return tabulate(
        rows,
        {
            rows[0]["axis"] or "Name": itemgetter("value"),
            "Study": itemgetter("study"),
            "Sequences": lambda row: DASH if row["sequences"] is None else str(row["sequences"]),
            "Results": describe_results,
        },
    )


def tabulate_onsets(rows: Sequence[Row]) -> Listing:
    """The quantities that come to exceed a threshold over the members of a family (``family_onsets``), and where."""
    places: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        places.setdefault((row["quantity"], row["last_below"], row["first_above"]), []).append(row)
    return tabulate(
        [{**of[0], "where": _list_places(of)} for of in places.values()],
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Threshold": lambda row: number(row["threshold"]),
            "Last below": itemgetter("last_below"),
            "First above": itemgetter("first_above"),
            "Where (layer.head)": itemgetter("where"),
        },
    )


def _list_places(rows: Sequence[Row]) -> str:
    """The places of rows, heads last: ``model, layer 0, 0.3, 0.5``."""
    heads = [f"{row['layer']}.{row['head']}" for row in rows if row["head"] is not None]
    return ", ".join([*(_name_place(row) for row in rows if row["head"] is None), *heads])


def _name_place(row: Row) -> str:
    """The place of a row: the model, a layer or a head."""
    if row["layer"] is None:
        return "model"
    return f"layer {row['layer']}" if row["head"] is None else name_head(row)


def tabulate_differences(rows: Sequence[Row]) -> Listing:
    """Differences of quantities of the model between two members of a family (``family_differences``)."""
    return tabulate(
        rows,
        {
            "Quantity": lambda row: name_quantity(row["quantity"]),
            "Difference (interval)": lambda row: format_own_interval(row, "difference") or DASH,
            "Pairs": lambda row: "same sequences" if row["paired"] else "other sequences",
        },
    )


def tabulate_overlaps(rows: Sequence[Row]) -> Listing:
    """The heads of each member that share the fewest selected keys with the member before (``family_overlaps``)."""
    return tabulate(
        rows,
        {
            "Study": itemgetter("label"),
            "Compared with": itemgetter("reference"),
            "Head": _name_place,
            "N": lambda row: str(row["n"]),
            "Shared (interval)": lambda row: format_own_interval(row, "shared"),
        },
    )
