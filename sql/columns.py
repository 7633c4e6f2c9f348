"""Columns and checks for the SQL templates: those that tables share, and those derived from declared quantities."""

from collections.abc import Iterable, Mapping
from math import isfinite

from geometry.quantities import BY_HEAD, RATES, SELECTION, Concentration, Quantity, QueryMeasures, list_declared
from sql.thresholds import SIGNATURE

KEYS: Mapping[str, tuple[str, str]] = {
    "family": ("VARCHAR", "name of the family"),
    "study": ("VARCHAR", "name of the study"),
    "sequence": ("INTEGER", "sequence, from 0"),
    "query": ("INTEGER", "position of the query in its sequence"),
    "layer": ("SMALLINT", "layer, from 0"),
    "head": ("SMALLINT", "query head, from 0"),
    "kv_head": ("SMALLINT", "KV head, from 0"),
    "temperature": ("DOUBLE", "T, by which logits are divided; T = 1 gives the model's own weights"),
    "n": ("INTEGER", "N, the number of selected keys"),
    "sequences": ("INTEGER", "number of sequences averaged"),
    "heads": ("INTEGER", "number of heads averaged"),
}
"""Type and comment of the columns that identify a row."""

METRICS: Mapping[str, str] = {
    "precision": "Precision P(r_max, N)",
    "recall": "Recall R(r_min, N)",
    "f_r_max": "F(r_max, N)",
    "f_r_min": "F(r_min, N)",
}
"""The metrics that are averaged and bounded, and their names in comments."""

MEANS: Mapping[str, str] = {
    **METRICS,
    "specificity": "specificity, the share of the keys left out that are farther than r_max",
    "precision_excess": "Precision above its floor n / n_keys, as a share of the possible range",
}
"""The metrics that are averaged, in the order of ``METRICS``, and their names in comments."""

CONCENTRATION = tuple(
    quantity for quantity in list_declared(Concentration).values() if quantity.unit not in {"index", "code"}
)
"""The columns of ``attention_rows`` that say how many keys weights are spread over, beside positions and roles."""

OF_ATTENTION = tuple(
    quantity
    for name, quantity in SELECTION.items()
    if quantity.axes == BY_HEAD and name not in list_declared(Concentration)
)
"""The other quantities that are columns of ``attention_rows``."""

OF_CONTEXTS: Mapping[str, str] = {name: MEANS[name] for name in RATES}
"""The columns of ``context_heads`` that are means, and their names in comments."""

OF_QUERIES = tuple(list_declared(QueryMeasures).values())  # The quantities that are columns of `query_heads`

OF_SIGNATURE = (
    *("sink_share", "last_share", "rest_share", "cos_sink_max", "cos_sink_level", "cos_sink_change"),
    *("cos_last_level", "cos_last_change", "cos_last_p05"),
)
"""Inputs of the rules that ``head_taxonomy`` averages over sequences."""

COURSE = ("cos_sink_max", "cos_sink_level", "cos_sink_change", "cos_last_level", "cos_last_change")
"""Inputs of the rules that are of the course of the cosines of s_N over ln N."""

OF_KINDS = (*("margin", "retriever_score", "mixer_score", "reset_score"), *OF_SIGNATURE)
"""The columns of ``head_taxonomy`` that are measures of a head."""

TYPES = {"int32": "INTEGER", "float32": "FLOAT", "float64": "DOUBLE"}

SMALLEST = "1e-37"  # Magnitude near which float32 loses digits


def key_columns(*names: str, of_model: bool = False) -> str:
    """The lines of a table definition for shared columns, none of which may be NULL; the model has no layer or head."""
    known = [name for name in names if not of_model or name not in {"layer", "head"}]
    return "\n".join(f"    {name} {KEYS[name][0]} NOT NULL, -- {KEYS[name][1]}" for name in known)


def interval_columns(name: str, meaning: str, domain: str, *, kind: str = "DOUBLE") -> str:
    """The lines of a table definition for an estimate and the ends of its interval over sequences.

    Each ends with a comma, as all that define columns: DuckDB allows one after the last column.
    """
    return (
        f"    {name} {kind}, -- {meaning} {domain}\n"
        f"    {name}_low {kind}, -- lower end of its 95 % interval over sequences; NULL for one {domain}\n"
        f"    {name}_high {kind}, -- upper end of that interval {domain}"
    )


def budget_columns() -> str:
    """The lines of a table definition for the N of a share of the weight and of an error."""
    meanings = {
        f"n_{share}": f"mean fewest keys that hold {share} % of the sum of the weights" for share in (50, 90, 99)
    }
    meanings |= {
        f"n_{kind}_{share}": f"mean smallest N from which error_{kind} of selection stays below {share} %"
        for kind in ("renormalised", "mean")
        for share in (10, 5, 1)
    }
    return "\n".join(interval_columns(name, meaning, "[1, inf)") for name, meaning in meanings.items())


def key_names(*names: str, of_model: bool = False) -> str:
    """The lines of a view's SELECT for shared columns; the model has no layer or head."""
    known = [name for name in names if not of_model or name not in {"layer", "head"}]
    return "\n".join(f"    {name}, -- {KEYS[name][1]}" for name in known)


def quantity_columns(quantities: Iterable[Quantity]) -> str:
    """The lines of a table definition for quantities."""
    return "\n".join(map(_define, quantities))


def _define(quantity: Quantity) -> str:
    null = " NOT NULL" if quantity.missing is None else ""
    return f"    {quantity.name} {TYPES[quantity.dtype]}{null}, -- {quantity.describe()}"


def mean_columns(quantities: Iterable[Quantity]) -> str:
    """The lines of a view's SELECT for means of quantities over sequences."""
    return "\n".join(
        f"    avg({quantity.name}::DOUBLE) AS {quantity.name}, -- mean over sequences of the "
        f"{quantity.describe().replace('; NULL', '; NULL where that is so in all sequences:')}"
        for quantity in quantities
    )


def course_columns() -> str:
    """The lines of a table definition for the course of the cosines of s_N."""
    return "\n".join(f"    {name} DOUBLE, -- {SIGNATURE[name]}" for name in COURSE)


def quantity_names(quantities: Iterable[Quantity]) -> str:
    """The lines of a view's SELECT for quantities that a table holds."""
    return "\n".join(f"    {quantity.name}, -- {quantity.describe()}" for quantity in quantities)


def violations(quantities: Iterable[Quantity]) -> str:
    """The condition that a row has a value outside the domain of one of its quantities."""
    conditions = [condition for quantity in quantities for condition in _list_conditions(quantity)]
    return "\n        OR ".join(conditions)


def _list_conditions(quantity: Quantity) -> Iterable[str]:
    """The conditions that one value is outside its domain; NULL meets none of them.

    Each compares a column with a constant where it can, since DuckDB's statistics decide that without reading the
    column. NaN is greater than infinity.
    """
    name = quantity.name
    for end, infinity, below, closed in (
        (quantity.low, "-inf", True, {"both", "left"}),
        (quantity.high, "inf", False, {"both", "right"}),
    ):
        sign, beyond = ("<", "-") if below else (">", "+")
        bounded = isinstance(end, str) or isfinite(end)
        if quantity.dtype != "int32" and (isinstance(end, str) or not bounded):
            yield f"{name} {sign}= '{infinity}'"
        if bounded:
            within = "" if quantity.closed in closed else "="
            rounding = f" {beyond} ({quantity.slack:g} * abs({end}) + {SMALLEST})" if quantity.slack and end else ""
            yield f"{name} {sign}{within} {end}{rounding}"
