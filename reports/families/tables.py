"""Tables of the members of a family, and of what differs between them."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

from reports.families.findings import name_quantity
from reports.findings.listings import DASH, Listing, format_own_interval, tabulate
from reports.findings.numbers import Row, name_head, number


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


def tabulate_family_differences(rows: Sequence[Row]) -> Listing:
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
