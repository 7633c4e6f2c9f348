"""Findings on a family of studies: what appears over its members, and what differs between them."""

from collections.abc import Collection, Sequence

from reports.findings.numbers import Row, count, join_sentences, name_head, percent

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


def describe_members(rows: Sequence[Row]) -> str:
    """How many members there are and which are missing (``family_members``)."""
    missing = [row["value"] for row in rows if not row["landed"]]
    apart = [row["value"] for row in rows if row["landed"] and not row["alike"]]
    return join_sentences(
        f"{count(len(rows), 'member')}{_name_axis(rows)}.",
        f"Without results: {', '.join(missing)}." if missing else "",
        f"Differences from {', '.join(apart)} are not paired, since the tokens differ." if apart else "",
    )


def _name_axis(rows: Sequence[Row]) -> str:
    """The axis of a family, after its number of members."""
    axis = rows[0]["axis"] if rows else ""
    return f" by {axis}" if axis else ""


def describe_untested(claims: Collection[str]) -> str:
    """How many claims are left out, since no member can test them; empty if none is."""
    verb = "is" if len(claims) == 1 else "are"
    return f"{count(len(claims), 'claim')} that no member can test {verb} left out." if claims else ""


def describe_onsets(rows: Sequence[Row], quantity: str) -> str:
    """Which heads come to exceed the threshold of a quantity, and between which members (``family_onsets``)."""
    of_heads = [row for row in rows if row["quantity"] == quantity and row["head"] is not None]
    own = [row for row in of_heads if row["state"] == "appears"]
    waiting = len(of_heads) - len(own)
    undecided = f"Of {count(waiting, 'other head' if own else 'head')} it is undecided." if waiting else ""
    if not own:
        none = f"No head is found to come to exceed the threshold of {name_quantity(quantity)} over these members."
        return join_sentences(none, undecided)
    first = own[0]
    between = f"between {first['last_below']} and {first['first_above']}"
    rows_of = (
        f"{count(len(own), 'head')} {'comes' if len(own) == 1 else 'come'} to exceed {first['threshold']:g} "
        f"({name_quantity(quantity)}), first {name_head(first)}, {between}."
    )
    return join_sentences(rows_of, undecided)


def describe_differences(rows: Sequence[Row]) -> str:
    """How many quantities of the model differ between the last member and the first (``family_differences``)."""
    known = [row for row in rows if row["difference_low"] is not None]
    if not known:
        return "No quantity has an interval of its difference."
    apart = [row for row in known if row["difference_low"] > 0 or row["difference_high"] < 0]
    return (
        f"The intervals of {len(apart)} of {count(len(known), 'difference')} between {known[0]['study']} and "
        f"{known[0]['reference']} exclude 0; one in twenty would if nothing differed."
    )


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
