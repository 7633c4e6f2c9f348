"""Declarations of every quantity of a selection: name, unit, domain, meaning and source, each declared once.

Holds ``Quantity``, the dataclasses whose fields are declared with it, and ``SELECTION``, all quantities that are stored
for a selection. The lists of outputs of the kernels, the arrays of the Dask blocks and everything that stores,
documents or checks these numbers are derived from the declarations. To add a quantity per N, add a field to
``SelectionProfile`` here and compute it in ``geometry.selection.host``.

Importing this module loads only NumPy. What does not belong here: how the numbers are computed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from geometry.arrays import F64, I32

if TYPE_CHECKING:
    import pyarrow as pa


Axes = tuple[str, ...]
"""Names of the axes that a quantity has for one sequence."""

BY_N: Axes = ("query", "layer", "head", "n")
"""One number per N; element i along ``n`` belongs to N = i + 1."""
BY_KAPPA: Axes = ("query", "layer", "head", "kappa", "n")
BY_HEAD: Axes = ("query", "layer", "head")
BY_KV_HEAD: Axes = ("query", "layer", "kv_head")
BY_LAYER: Axes = ("query", "layer")
BY_SEEN_KEY: Axes = ("query", "layer", "kv_head", "key")
"""One number per query, KV head and key that the query attends to."""
BY_KEY: Axes = ("layer", "kv_head", "key")
"""One number per KV head and key, the same for all queries."""
BY_POSITION: Axes = ("layer", "head", "position")
"""One number per head and position of a sequence, as a query."""
OF_SEQUENCE: Axes = ("layer", "kv_head")
"""One number per KV head, the same for all queries."""

ROLES = ("sink", "last", "other")
"""Roles of a key for a query, by code: position 0, the query's own position, any other."""

TOP_KEYS = 16
"""Keys of a head that are measured one by one, those of largest weight."""

PATTERNS = ("sink", "self", "previous", "local", "duplicate", "induction", "sink_matched", "sink_unmatched", "entropy")
"""What heads look at (``geometry.patterns``), in the order in which stores have it along their axis ``pattern``."""

LOCAL_KEYS = 8
"""Number of keys of the pattern ``local``: the query's own and those just before it."""

MODEL_UNITS = "model units"
"""The unit of the value states, and of every length computed from them."""

Bound = float | str
"""An end of a domain: a number, or an expression over ``n`` (N), ``n_keys``, ``query`` and quantities of the same axes.

Expressions use names, numbers, ``+ - * /`` and parentheses, so that SQL and NumPy evaluate the same text.
"""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One quantity: its meaning, its domain and how it is stored."""

    meaning: str
    """One line of text without a full stop."""
    unit: str
    axes: Axes
    source: str = ""
    """Equation, figure or definition, of arXiv 2602.01893 unless it names another source."""
    dtype: Literal["int32", "float32", "float64"] = "float32"
    """Type in which it is stored; it is computed in float64 unless it is an integer."""
    low: Bound = -math.inf
    high: Bound = math.inf
    """Ends of the domain. Values are never infinite, even if the ends are."""
    closed: Literal["both", "left", "right", "neither"] = "both"
    """Which ends belong to the domain."""
    slack: float = 0.0
    """Largest excess of a stored value beyond an end because of rounding, as a share of that end."""
    missing: str | None = None
    """When the value is missing, as text that follows "NULL"; None if it is never missing."""
    name: str = ""
    """Set by ``list_declared`` and ``list_derived``."""

    @property
    def fill(self) -> float:
        """Missing value in an array: −1 for integers, NaN for all others."""
        return -1 if self.dtype == "int32" else math.nan

    def describe(self, absent: str = "NULL") -> str:
        """One line for a comment: meaning, source, unit of a length, and when the value is missing.

        Parameters
        ----------
        absent
            Name of a missing value: ``NULL`` in SQL, ``NaN`` in arrays.
        """
        source = f" ({self.source})" if self.source else ""
        unit = f", in {self.unit}" if self.unit == MODEL_UNITS else ""
        return f"{self.meaning}{source}{unit}" + (f"; {absent} {self.missing}" if self.missing else "")


def list_declared(record: type, axes: Axes | None = None) -> Mapping[str, Quantity]:
    """The quantities that the fields of a dataclass declare, by name and in order.

    Parameters
    ----------
    record
        A dataclass of this module.
    axes
        Only the quantities with these axes; all by default.
    """
    return _read_fields(record, axes)


@cache
def _read_fields(record: type, axes: Axes | None) -> Mapping[str, Quantity]:
    """The same, read once."""
    quantities = {one.name: replace(one.metadata["quantity"], name=one.name) for one in fields(record)}
    return MappingProxyType({name: one for name, one in quantities.items() if axes in {None, one.axes}})


def list_derived(record: type) -> Mapping[str, Quantity]:
    """The quantities that the properties of a dataclass declare, which follow from its fields, by name and in order."""
    quantities: dict[str, Quantity] = {}
    for base in reversed(record.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, property) and member.fget is not None:
                hint = get_type_hints(member.fget, include_extras=True)["return"]
                quantities[name] = replace(hint.__metadata__[0], name=name)
    return MappingProxyType(quantities)


Record = TypeVar("Record", bound=type)


def _document_fields(record: Record) -> Record:
    """Add the declared quantities to the docstring of a dataclass."""
    described = (f"{name}\n        {quantity.describe('NaN')}." for name, quantity in list_declared(record).items())
    record.__doc__ = f"{(record.__doc__ or '').rstrip()}\n\n    Attributes\n    ----------\n    " + "\n    ".join(
        described
    )
    return record


def _declare(meaning: str, source: str = "", axes: Axes = BY_N, **settings: Any) -> Quantity:
    """Declare a quantity; ``settings`` are the other fields of ``Quantity``."""
    return Quantity(meaning=meaning, source=source, axes=axes, **settings)


_length = partial(_declare, unit=MODEL_UNITS, low=0.0)
_cosine = partial(_declare, unit="cosine", low=-1.0, high=1.0, slack=1e-6)
_ratio = partial(_declare, unit="ratio", low=0.0, high=1.0, slack=1e-6)
_metric = partial(_ratio, dtype="float64")
_error = partial(_declare, unit="ratio", low=0.0, missing="if the output has norm 0")
_weight = partial(_declare, unit="probability", low=0.0, high=1.0, slack=2.0**-7)
_keys = partial(_declare, unit="keys", dtype="int32")
_entropy = partial(_declare, unit="nats", axes=BY_HEAD, low=0.0)
_effective = partial(_declare, unit="keys", axes=BY_HEAD, low=1.0, high="n_keys", slack=1e-6)
_top = partial(_ratio, axes=BY_HEAD, low="1 / n_keys")
_fewest = partial(_keys, axes=BY_HEAD, low=1)
_part = partial(_length, source="Section 4.2", axes=BY_HEAD)


def _field(declare: Callable[..., Quantity], *meaning: Any, **settings: Any) -> Any:
    """A field of a dataclass that holds what such a declaration says."""
    return field(metadata={"quantity": declare(*meaning, **settings)})


def _index(meaning: str, **settings: Any) -> Quantity:
    """The index of a key, counted from the first key that the query attends to."""
    place = "index among the keys, the first of which is at position query + 1 - n_keys"
    return _declare(
        f"{meaning}: {place}", axes=BY_HEAD, unit="index", dtype="int32", low=0, high="n_keys - 1", **settings
    )


def _holding(share: int, what: str, **settings: Any) -> Quantity:
    """The number of keys that hold a share of weights or weighted norms, in percent."""
    return _fewest(f"fewest keys that hold {share} % of the sum of the {what}", **settings)


def _role(meaning: str, **settings: Any) -> Quantity:
    """The role of a key for the query."""
    codes = ", ".join(f"{code} {role}" for code, role in enumerate(ROLES))
    text = f"{meaning}: {codes}; the query's own position is last, even if it is the sink's"
    return _declare(text, axes=BY_HEAD, unit="code", dtype="int32", low=0, high=len(ROLES) - 1, **settings)


_N_KEYS = _keys(
    "number of keys the query may attend to",
    "",
    BY_LAYER,
    low=1,
    high="query + 1",
    missing="in a layer without attention",
)
_NO_SINK = "if a window hides the sink"
_NO_A_0 = "if the sink is not selected or is hidden by a window"
_J = "the selected keys except the sink"
_EMPTY_J = "if only the sink is selected"
_NO_BOUND = "if only the sink is selected, all weighted norms are 0, or the values are divided by a value_scale of 0"
_NO_DIRECTION = "if the sink's value state or every other value state has norm 0"


_Selected = Annotated[I32, _keys("N, the number of selected keys", low=1, high="n_keys - 1")]
_NumberOfKeys = Annotated[I32, _N_KEYS]
_Precision = Annotated[
    F64, _metric("Precision P(r_max, N), the selected share of the keys within r_max", "eq. 2", low="n / n_keys")
]
_Recall = Annotated[F64, _metric("Recall R(r_min, N), the share of the selected keys within r_min", "eq. 3")]
_FScoreAtRMax = Annotated[F64, _metric("F(r_max, N), harmonic mean of Precision and Recall at r_max", "eq. 5")]
_FScoreAtRMin = Annotated[F64, _metric("F(r_min, N), harmonic mean of Precision and Recall at r_min", "eq. 5")]
_Specificity = Annotated[F64, _metric("specificity, the share of the keys left out that are farther than r_max", "")]
_PrecisionExcess = Annotated[
    F64,
    _metric("Precision above its floor n / n_keys, as a share of its possible range: (P - floor) / (1 - floor)", ""),
]


@_document_fields
@dataclass(frozen=True, repr=False)
class SelectionCounts:
    """Counts and radii of the selection of the N largest weights; element i of the last axis is N = i + 1.

    All arrays have the shape (…, n − 1), leading axes as given, n the number of keys; counts are int32, radii float64.
    Precision, Recall and the other quantities that follow from the counts are properties. If heads have different
    numbers of keys, both counts are −1 beyond the n − 1 of a head, and the properties are NaN.
    """

    k_in: I32 = _field(_keys, "K_in, selected keys no farther from s_N than r_min", "eq. 20", low=0, high="n")
    k_out: I32 = _field(
        _keys, "K_out, keys left out that are no farther from s_N than r_max", "eq. 20", low=0, high="n_keys - n"
    )
    r_min: F64 = _field(_length, "distance from s_N to the nearest key left out", "eq. 19")
    r_max: F64 = _field(_length, "distance from s_N to the farthest selected key", "eq. 19")

    @property
    def n(self) -> _Selected:
        """N along the last axis, 1 to n − 1: int32 (n − 1,)."""
        return np.arange(1, self.k_in.shape[-1] + 1, dtype=np.int32)

    @property
    def n_keys(self) -> _NumberOfKeys:
        """The number of keys n of each head, one more than the N for which it has counts: int32 (…)."""
        return np.asarray(1 + np.count_nonzero(self.k_in >= 0, axis=-1), np.int32)

    @property
    def precision(self) -> _Precision:
        """N / (N + K_out); P(r_min, N) is 1 by convention (eq. 4).

        At N = 1 it is 1, unless a key left out has the same weighted value state as the selected key.
        """
        return self.n / (self.n + _convert_count(self.k_out))

    @property
    def recall(self) -> _Recall:
        """K_in / N; R(r_max, N) is 1 by convention (eq. 4). At N = 1 it is 1."""
        return _convert_count(self.k_in) / self.n

    @property
    def f_r_max(self) -> _FScoreAtRMax:
        """Harmonic mean of P(r_max, N) and R(r_max, N) = 1, which is 2P / (1 + P)."""
        return 2 * self.n / (2 * self.n + _convert_count(self.k_out))

    @property
    def f_r_min(self) -> _FScoreAtRMin:
        """Harmonic mean of P(r_min, N) = 1 and R(r_min, N), which is 2R / (1 + R)."""
        k_in = _convert_count(self.k_in)
        return 2 * k_in / (self.n + k_in)

    @property
    def specificity(self) -> _Specificity:
        """1 − K_out / (n − N), which has no floor that rises with N, unlike Precision."""
        return 1 - _convert_count(self.k_out) / (self.n_keys[..., None] - self.n)

    @property
    def precision_excess(self) -> _PrecisionExcess:
        """(P − N/n) / (1 − N/n), which is 0 at the least possible Precision for this N."""
        floor = self.n / self.n_keys[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):  # N = n, beyond the last N of a head, where P is NaN
            excess: F64 = (self.precision - floor) / (1 - floor)
        return excess

    def __repr__(self) -> str:
        """Shape, number of keys, mean Precision and Recall at a few N."""
        known = self.k_in >= 0
        lead, shown = known.shape[:-1], [n for n in (1, 4, 16, 64, 256, 1024) if known[..., n - 1 : n].any()]
        heads = " × ".join(map(str, lead)) + " heads" if lead else "one head"
        keys = "–".join(map(str, np.unique([self.n_keys.min(), self.n_keys.max()]))) if known.size else "no"
        means = (
            f"mean {name} " + ", ".join(f"{np.nanmean(getattr(self, name)[..., n - 1]):.2f}" for n in shown)
            for name in ("precision", "recall")
        )
        at = f"; at N = {', '.join(map(str, shown))}: {'; '.join(means)}" if shown else ""
        return f"{type(self).__name__}({heads}, {keys} keys{at})"

    def to_arrow(self, axes: Sequence[str] = ()) -> "pa.Table":
        """One row per head and N, as a table of Apache Arrow.

        Parameters
        ----------
        axes
            Names of the leading axes, for the columns of their indices; ``axis_0``, ``axis_1``, … by default.

        Returns
        -------
        pyarrow.Table
            Columns: the indices of the leading axes, int32; ``n``, ``n_keys`` and the quantities that follow from the
            counts; the arrays, those of one number per head repeated for every N, those of one number per κ as lists.
            Missing values are NULL. The description and the unit of each quantity are the metadata of its field.

        Raises
        ------
        ValueError
            If the number of names differs from the number of leading axes.
        """
        import pyarrow as pa

        known = self.k_in >= 0
        names = list(axes) or [f"axis_{axis}" for axis in range(known.ndim - 1)]
        if len(names) != known.ndim - 1:
            raise ValueError(
                f"axes must name the {known.ndim - 1} leading axes of shape {known.shape[:-1]}, got {names}"
            )
        columns = {
            name: pa.array(place.astype(np.int32)) for name, place in zip(names, np.nonzero(known), strict=False)
        }
        described = [pa.field(name, pa.int32(), nullable=False) for name in names]
        for name, quantity in {**list_derived(type(self)), **list_declared(type(self))}.items():
            columns[name] = _build_column(getattr(self, name), quantity, known)
            comment = {"description": quantity.describe(), "unit": quantity.unit}
            described.append(pa.field(name, columns[name].type, metadata=comment))
        return pa.table(columns, schema=pa.schema(described))


@_document_fields
@dataclass(frozen=True, repr=False)
class SelectionProfile(SelectionCounts):
    """All quantities of the selection of the N largest weights, for every N; element i of the last axis is N = i + 1.

    Arrays have the shape (…, n − 1), those of one number per κ (…, κ, n − 1), those of one number per head (…): leading
    axes as given, n the number of keys. Counts are int32, all others float64. The weighted norm of a key is ‖α v‖.
    """

    norm_s: F64 = _field(_length, "norm of s_N, the sum of the selected weighted value states", "eq. 1")
    norm_s_without_sink: F64 = _field(_length, "norm of s_N without the sink's part", "Figure 7", missing=_NO_SINK)
    norm_s_without_last: F64 = _field(_length, "norm of s_N without the last token's part", "Figure 7")
    distance_rest: F64 = _field(
        _length, "distance of s_N from the sum of the weighted value states left out", "arXiv 2508.17821"
    )
    cos_sink: F64 = _field(
        _cosine, "cosine of s_N and the sink's value state", "Figure 7", missing=f"{_NO_SINK} or one of them has norm 0"
    )
    cos_last: F64 = _field(
        _cosine, "cosine of s_N and the last token's value state", "Figure 7", missing="if one of them has norm 0"
    )
    a_0: F64 = _field(_length, "a_0, weighted norm of the sink", "eq. 8", missing=_NO_A_0)
    s_in: F64 = _field(_length, f"S_in, sum of the weighted norms of {_J}", "eq. 7", missing=_EMPTY_J)
    a_min_in: F64 = _field(_length, f"smallest weighted norm of {_J}", "eq. 7", high="a_max_in", missing=_EMPTY_J)
    a_max_in: F64 = _field(
        _length, f"largest weighted norm of {_J}", "eq. 8", high="s_in", slack=1e-5, missing=_EMPTY_J
    )
    a_max_out: F64 = _field(_length, "largest weighted norm of the keys left out", "eq. 7")
    rho_out: F64 = _field(
        _cosine,
        "ρ_out, largest cosine of a selected key except the sink with a key left out, at least 0",
        "eq. 7",
        low=0.0,
        missing=_EMPTY_J,
    )
    precision_upper: F64 = _field(
        _ratio,
        "upper bound of the expected Precision P(r_max, N)",
        "eq. 13",
        BY_KAPPA,
        low="1 - 1 / (2 * (n + 1))",
        missing=_NO_BOUND,
    )
    recall_upper: F64 = _field(
        _ratio, "upper bound of the expected Recall R(r_min, N)", "eq. 15", BY_KAPPA, low=0.5, missing=_NO_BOUND
    )
    value_scale: F64 = _field(
        _length,
        "C, median norm of the value states of the keys attended to, without the sink",
        "Assumption 1",
        BY_KV_HEAD,
        missing="if the sink is the only key",
    )
    weight_sum: F64 = _field(
        _weight, "sum of the weights, below 1 where the head has a learned sink", axes=BY_HEAD, closed="right"
    )


@_document_fields
@dataclass(frozen=True)
class ScaleFreeBounds:
    """Lower bounds of expectations for every N; element i of the last axis is N = i + 1, float64 (…, n − 1).

    They are stored as ``precision_lower_scale_free`` and ``recall_lower_scale_free``.
    """

    precision_lower: F64 = _field(
        _ratio,
        "scale-free lower bound of the expected Precision P(r_max, N), at least N / n_keys",
        "geometry/bounds/scale_free.md",
        low="n / n_keys",
        missing="if the norm of a value state is not finite in float32",
    )
    recall_lower: F64 = _field(
        _ratio,
        "scale-free lower bound of the expected Recall R(r_min, N)",
        "geometry/bounds/scale_free.md",
        missing="if the norm of a value state is not finite in float32",
    )


@_document_fields
@dataclass(frozen=True)
class SelectionErrors:
    """What a head's output loses when it keeps N keys; element i of the last axis is N = i + 1, float64 (…, n − 1).

    Errors are relative to the norm of the output o, the sum of all weighted value states. The mean value state is over
    the keys that the query may attend to. A learned sink keeps its weight.
    """

    weight_left_out: F64 = _field(_weight, "τ, sum of the weights of the keys left out")
    error_renormalised: F64 = _field(
        _error,
        "error of the selected keys with their weights rescaled to the sum of all, relative to the output",
        "arXiv 2512.07647",
    )
    error_mean: F64 = _field(
        _error,
        "error of s_N plus the mean value state times the weight left out, relative to the output",
        "arXiv 2312.04985",
    )


@_document_fields
@dataclass(frozen=True)
class OutputParts:
    """The sink's weight, and norms of the parts of a head's output, the sum of all weighted value states; float64."""

    sink_weight: F64 = _field(_weight, "weight of the sink", axes=BY_HEAD, missing=_NO_SINK)
    norm_y_0: F64 = _field(_part, "norm of the sink's weighted value state", missing=_NO_SINK)
    norm_y_last: F64 = _field(_part, "norm of the last token's weighted value state")
    norm_rest: F64 = _field(
        _part, "norm of the sum of all other weighted value states, 0 if there are none", high="total_rest", slack=1e-5
    )
    total_rest: F64 = _field(_part, "sum of the norms of all other weighted value states, 0 if there are none")
    norm_output: F64 = _field(_length, "norm of the sum of all weighted value states", "eq. 1 with N = n", BY_HEAD)
    norm_output_without_sink: F64 = _field(_part, "norm of that sum without the sink's part", missing=_NO_SINK)
    norm_output_without_last: F64 = _field(_part, "norm of that sum without the last token's part")
    norm_contributions: F64 = _field(
        _length, "square root of the sum of the squared norms of all weighted value states", "", BY_HEAD
    )


def _convert_count(count: I32) -> F64:
    """Convert a count to float; NaN where it is unknown."""
    return np.where(count < 0, np.nan, count)


def _build_column(array: NDArray[Any], quantity: Quantity, known: NDArray[np.bool_]) -> "pa.Array":
    """Build a column with one row per True of ``known`` (…, N); NULL for NaN."""
    import pyarrow as pa

    if "n" not in quantity.axes:
        array = array[..., None]
    if "kappa" not in quantity.axes:
        return pa.array(np.broadcast_to(array, known.shape)[known], from_pandas=True)
    rows = np.moveaxis(array, -2, -1)[known]  # (row, κ)
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows.shape[1])
    return pa.ListArray.from_arrays(offsets, pa.array(rows.ravel(), from_pandas=True))


_NO_OUTPUT = "if all weighted norms are 0"


@_document_fields
@dataclass(frozen=True)
class Concentration:
    """How the weights and the contributions ‖α v‖ of one query are spread over its keys.

    Arrays of the leading axes (…); whole numbers are int32, all others float64.
    """

    entropy_keys: F64 = _field(_entropy, "entropy of the weights, each divided by their sum")
    effective_keys: F64 = _field(_effective, "exponential of entropy_keys, the effective number of keys attended to")
    top_weight: F64 = _field(_top, "largest weight, divided by the sum of the weights")
    top_key: I32 = _field(_index, "the key of the largest weight, the first if several are equal")
    top_role: I32 = _field(_role, "role of the key of the largest weight for the query")
    n_50: I32 = _field(_holding, 50, "weights", high="n_90")
    n_90: I32 = _field(_holding, 90, "weights", high="n_99")
    n_99: I32 = _field(_holding, 99, "weights", high="n_keys")
    largest_deviation: F64 = _field(
        _ratio,
        "largest difference of a weight, divided by the sum of the weights, from the uniform 1 / n_keys",
        "arXiv 2508.17821",
        BY_HEAD,
        high="1 - 1 / n_keys",
    )
    entropy_contributors: F64 = _field(
        _entropy, "entropy of the weighted norms, each divided by their sum", missing=_NO_OUTPUT
    )
    effective_contributors: F64 = _field(
        _effective,
        "exponential of entropy_contributors, the effective number of keys that contribute",
        missing=_NO_OUTPUT,
    )
    top_contribution: F64 = _field(
        _top, "largest weighted norm, divided by the sum of the weighted norms", missing=_NO_OUTPUT
    )
    top_contributor: I32 = _field(
        _index, "the key of the largest weighted norm, the first if several are equal", missing=_NO_OUTPUT
    )
    top_contributor_role: I32 = _field(
        _role, "role of the key of the largest weighted norm for the query", missing=_NO_OUTPUT
    )
    contributors_50: I32 = _field(_holding, 50, "weighted norms", high="contributors_90", missing=_NO_OUTPUT)
    contributors_90: I32 = _field(_holding, 90, "weighted norms", high="contributors_99", missing=_NO_OUTPUT)
    contributors_99: I32 = _field(_holding, 99, "weighted norms", high="n_keys", missing=_NO_OUTPUT)


RATES = ("precision", "recall", "specificity")
"""What ``geometry.selection.every_query.Contexts`` averages over queries: P(r_max, N), R(r_min, N), and specificity."""

_place = partial(_declare, axes=BY_POSITION, unit="position", dtype="int32", low=0, high="query")
_NO_LEVEL = "of fewer than 3 keys"
_NO_WEIGHT = "if all weights are 0"


def _level(what: str) -> Quantity:
    """A mean over ln N of what follows from the counts of one query."""
    grid = "mean over ln N, at the powers of √2 rounded and n_keys - 1, N from 2"
    return _ratio(f"{what}: {grid}", "", BY_POSITION, missing=_NO_LEVEL)


@_document_fields
@dataclass(frozen=True)
class QueryMeasures:
    """What one query of a head selects, for every query of a text; float64 arrays of the leading axes (…)."""

    n_keys: F64 = _field(replace, _N_KEYS, axes=BY_POSITION, missing=None)
    recall_level: F64 = _field(_level, "Recall R(r_min, N)")
    specificity_level: F64 = _field(_level, "specificity, the share of the keys left out beyond r_max")
    precision_excess_level: F64 = _field(_level, "Precision above its floor, (P - N/n_keys) / (1 - N/n_keys)")
    effective_keys: F64 = _field(
        _effective,
        "effective number of keys, exponential of the weights' entropy",
        axes=BY_POSITION,
        missing=_NO_WEIGHT,
    )
    n_90: F64 = _field(
        _fewest, "fewest keys that hold 90 % of the weights", high="n_keys", axes=BY_POSITION, missing=_NO_WEIGHT
    )
    sink_weight: F64 = _field(_weight, "weight on position 0", axes=BY_POSITION, missing=_NO_SINK)
    self_weight: F64 = _field(_weight, "weight on the query's own position", axes=BY_POSITION)
    previous_weight: F64 = _field(
        _weight, "weight on the position before", axes=BY_POSITION, missing="if the query sees no other key"
    )
    top_position: F64 = _field(_place, "position of the key of the largest weight, the first if several are equal")
    top_weight: F64 = _field(
        _top, "largest weight, divided by the sum of the weights", axes=BY_POSITION, missing=_NO_WEIGHT
    )
    output_norm: F64 = _field(_length, "‖s_n‖, norm of the sum of all weighted value states", "", BY_POSITION)
    error_renormalised_16: F64 = _field(
        _error,
        "error_renormalised at N = 16: change of the head's output, over its norm, if the query attends to "
        "its 16 largest weights alone",
        "arXiv 2512.07647",
        BY_POSITION,
        missing="of at most 16 keys, or if the output is 0",
    )


_OTHERS: Mapping[str, Quantity] = {
    "cos_last_p05": _cosine(
        "5 % quantile of cos_last over ln N: exceeded or equalled over at least 95 % of ln N, each N with weight 1/N",
        "Section 4.2",
        BY_HEAD,
        missing="for one key, or if cos_last is missing over more than 5 % of ln N",
    ),
    "rho_0_of_keys": _cosine(
        "ρ_0, mean cosine of the sink's value state with those of the other keys attended to",
        "Section 4.1",
        BY_KV_HEAD,
        missing="if a window hides the sink, or its value state or every other value state has norm 0",
    ),
    "learned_sink": _weight(
        "weight of the head's learned sink, which is not a key: 1 - weight_sum, or 0 without a learned sink",
        axes=BY_HEAD,
        slack=0.0,
    ),
    "n_keys": _N_KEYS,
    "cos_last_of_keys": _cosine(
        "cosine of the key's value state with that of the query's own position",
        "Figure 10",
        BY_SEEN_KEY,
        missing="if the query may not attend to the key, or one of them has norm 0",
    ),
    "cos_sink_of_keys": _cosine(
        "cosine of the key's value state with the sink's", "Figure 10", BY_KEY, missing="if one of them has norm 0"
    ),
    "value_norm": _length("norm of the key's value state", "Assumption 1", BY_KEY),
    "mean_cosine": _cosine(
        "mean cosine of two value states, neither the sink's; element i along key belongs to distance i",
        "Assumption 2",
        BY_KEY,
        missing="if there is no pair with norms above 0 at this distance",
    ),
    "rho_0": _cosine(
        "ρ_0, mean cosine of the sink's value state with all others", "Assumption 2", OF_SEQUENCE, missing=_NO_DIRECTION
    ),
    "rho_0_sd": _cosine(
        "standard deviation of the sink's cosine over the other value states (divisor: their number)",
        "Assumption 2",
        OF_SEQUENCE,
        low=0.0,
        missing=_NO_DIRECTION,
    ),
}

SELECTION: Mapping[str, Quantity] = {
    **list_declared(SelectionProfile),
    **{
        f"{name}_scale_free": replace(quantity, name=f"{name}_scale_free")
        for name, quantity in list_declared(ScaleFreeBounds).items()
    },
    **list_declared(SelectionErrors),
    **list_declared(OutputParts),
    **list_declared(Concentration),
    **{name: replace(quantity, name=name) for name, quantity in _OTHERS.items()},
}
"""Every quantity that is stored for the selections of a study, by name."""
