"""The profile of many heads at once on a CUDA device: PyTorch for whole arrays, Triton kernels for the rest.

Holds ``profile_of_heads``, which returns its results on the host. What does not belong here: checks of the input
(``geometry.selection.profile``), the kernels (``geometry.selection.cuda_kernels``), the CPU
(``geometry.selection.host``).

Letters: n keys in order of falling weight, d components of a value state. Row N−1 of a head belongs to N, and s' is s
without the sink's part.

All arithmetic except that of ρ_out is in float64, in which data-centre GPUs multiply matrices as fast as in float32.
The inner products ⟨s'_N, y_l⟩ of a tile of rows of many heads are one matrix product; one kernel then reads each row.
Every comparison of energies has the error bound

    δ_l = a_l (slope · size + bend · a_l),    a_l = ‖y_l‖,

where size is at least the norm of the centre, ‖s'‖ or ‖s‖. Nothing is added for underflow: norms below 2⁻⁴⁶⁵ are
replaced by it, unless y is 0, whose energy is exactly 0. A row in which the bound leaves a comparison undecided is
flagged and recomputed by products of differences ⟨y − o, (y − s) + (o − s)⟩ = D_y − D_o, which keep their digits
however near two keys are and are exactly 0 for equal keys. So true ties count as ties.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from geometry.quantities import BY_KAPPA, BY_N, SelectionProfile, list_declared
from geometry.selection.keys import error_slope
from geometry.selection.upper_bounds import DENSITY_0, XI_STAR

COUNTS = tuple(name for name, quantity in list_declared(SelectionProfile, BY_N).items() if quantity.dtype == "int32")
"""Names of the counts of a profile, in the order in which ``profile_rows`` stores them."""

UPPER = tuple(list_declared(SelectionProfile, BY_KAPPA))
"""Names of the upper bounds of a profile, in the order in which ``profile_rows`` stores them."""

PER_HEAD = tuple(name for name, quantity in list_declared(SelectionProfile).items() if "n" not in quantity.axes)
"""Names of the arrays of a profile that have one element per head."""

TILE_BYTES = 2**28
"""Size of one tile of inner products, and of the arrays for the flagged rows that are recomputed together."""

UNIT_ROUNDOFF = 2.0**-53
"""Largest relative error of one float64 rounding."""

MOST_HEADS = 2**15
"""Heads of one kernel launch: fewer than CUDA's limit for the second axis of a grid."""

ROW_BLOCK, ROW_WARPS = 64, 1
"""Keys that ``profile_rows`` reads together, and the warps of one of its programs."""

KEY_ROWS = 8
"""Keys of one program of ``order_keys``."""

SUM_ROWS, SUM_COMPONENTS = 64, 16
"""Keys that ``cumulate`` adds up together, and the components of one of its programs."""

COSINE_SIDE, COSINE_CHUNK = 64, 32
"""Keys on each side of a tile of cosines, and the components multiplied together."""


def error_bend(head_dim: int) -> float:
    """Factor of a_l² in the error bound: a_l² has the rounding error of a sum of ``head_dim`` squares."""
    return 1.01 * (head_dim + 16) * UNIT_ROUNDOFF


def profile_of_heads(
    weights: Tensor, values: Tensor, *, kappas: Sequence[float], scale: Literal["unit", "raw"], sink: bool
) -> dict[str, NDArray[Any]]:
    """The arrays of ``SelectionProfile`` of many heads, computed on the device of the input, which is not checked.

    Parameters
    ----------
    weights
        Attention weights over the keys in order of position, (…, n), of any float type.
    values
        Value states of the same keys, (…, n, d), of any float type and any strides, whose leading axes broadcast.
    kappas, scale, sink
        As for ``geometry.selection_profile``.

    Returns
    -------
    dict
        NumPy arrays: ``k_in`` and ``k_out`` int32, all else float64: (…, n − 1), ``precision_upper`` and
        ``recall_upper`` (…, κ, n − 1), ``value_scale`` and ``weight_sum`` (…,).

    Raises
    ------
    RuntimeError
        If Triton is not installed.
    """
    n, d = values.shape[-2:]
    lead = torch.broadcast_shapes(weights.shape[:-1], values.shape[:-2])
    heads = weights.expand(*lead, n).reshape(-1, n), values.expand(*lead, n, d).reshape(-1, n, d)
    arrays = _profile(*heads, kappas=kappas, scale=scale, sink=sink).copy_to_host().name_arrays()
    return {name: array.reshape((*lead, *array.shape[1:])).numpy() for name, array in arrays.items()}


def _profile(
    weights: Tensor, values: Tensor, *, kappas: Sequence[float], scale: Literal["unit", "raw"], sink: bool
) -> "Results":
    """The results of ``profile_of_heads`` for weights (head, n) and values (head, n, d), a group of heads at a time."""
    weights, values = weights.detach(), values.detach()
    heads, n = weights.shape
    out = Results.empty(heads, n, len(kappas), weights.device)
    at_once, rows = _choose_extent(heads, n, values.shape[-1])
    with torch.cuda.device_of(weights):
        for start in range(0, heads, at_once):
            group = slice(start, start + at_once)
            _profile_group(
                weights[group], values[group], rows, out.select_heads(group), kappas=kappas, scale=scale, sink=sink
            )
    return out


def _profile_group(
    weights: Tensor, values: Tensor, rows: int, out: "Results", *, kappas: Sequence[float], scale: str, sink: bool
) -> None:
    """Fill ``out`` for a group of heads, ``rows`` rows of each at a time."""
    keys, n = arrange(weights, values, sink=sink), weights.shape[-1]
    torch.sum(weights, -1, dtype=torch.float64, out=out.select_head_array("weight_sum"))
    value_scale = out.select_head_array("value_scale").copy_(_median_length(keys, sink=sink))
    steepness = _compute_steepness(keys, value_scale, kappas, scale)
    _fill_rho_out(keys, out.select_field("rho_out"))
    for first in range(0, n - 1, rows):
        _profile_tile(keys, slice(first, min(first + rows, n - 1)), steepness, out)
    out.multiply_lengths(keys.unit)


def estimate_device_bytes(heads: int, n: int, head_dim: int, kappas: int = 1) -> int:
    """Upper bound of the device memory of ``profile_of_heads`` without its input, results included, in bytes.

    The workspace that the matrix library (cuBLAS) allocates once is not included.
    """
    # 20 bytes for a component of a key: y and s' in float64, a direction in float32
    group, rows = _choose_extent(heads, n, head_dim)
    blocks = -(-n // COSINE_SIDE)
    of_keys = group * n * (20 * head_dim + 160)
    of_cosines = 4 * group * (2 * blocks * n + blocks**2 + blocks * COSINE_SIDE**2)
    of_tile = group * rows * (8 * n + 64) + max(TILE_BYTES, _estimate_row_bytes(n, head_dim))
    of_results = heads * n * (8 * (len(import_kernels().FIELDS) + len(UPPER) * kappas) + 4 * len(COUNTS))
    return of_keys + max(of_cosines, of_tile) + of_results + 2**21


def _choose_extent(heads: int, n: int, head_dim: int) -> tuple[int, int]:
    """Number of heads that are processed together, and the number of rows of each."""
    group = max(1, min(heads, MOST_HEADS, TILE_BYTES // (8 * n * max(n, head_dim))))
    return group, min(n - 1, max(1, TILE_BYTES // (8 * n * group)))


def import_kernels() -> Any:
    """Import the module of the kernels; a RuntimeError if Triton is not installed."""
    try:
        from geometry.selection import cuda_kernels
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        msg = "profiles on a GPU need Triton, which is not installed: pip install triton"
        raise RuntimeError(msg) from None
    return cuda_kernels


@dataclass(frozen=True)
class Results:
    """The output arrays of some heads."""

    counts: Tensor
    """The arrays named by ``COUNTS``, int32 (count, head, n − 1)."""
    fields: Tensor
    """The arrays named by ``cuda_kernels.FIELDS``, (field, head, n − 1)."""
    upper: Tensor
    """The arrays named by ``UPPER``, (bound, head, κ, n − 1)."""
    per_head: Tensor
    """The arrays named by ``PER_HEAD``, (array, head)."""

    @classmethod
    def empty(cls, heads: int, n: int, kappas: int, device: torch.device) -> "Results":
        """Allocate the results of ``heads`` heads."""
        per_head = torch.empty((len(PER_HEAD), heads), dtype=torch.float64, device=device)
        return cls(
            counts=torch.empty((len(COUNTS), heads, n - 1), dtype=torch.int32, device=device),
            fields=per_head.new_empty((len(import_kernels().FIELDS), heads, n - 1)),
            upper=per_head.new_empty((len(UPPER), heads, kappas, n - 1)),
            per_head=per_head,
        )

    def select_heads(self, group: slice) -> "Results":
        """The results of some of the heads."""
        return Results(*(array[:, group] for array in self._list_arrays()))

    def copy_to_host(self) -> "Results":
        """Copy the results to page-locked host memory, which is faster than to pageable memory, and wait for them."""
        if not self.counts.is_cuda:
            return self
        copies = [torch.empty_like(array, device="cpu", pin_memory=True) for array in self._list_arrays()]
        for copy, array in zip(copies, self._list_arrays(), strict=True):
            copy.copy_(array, non_blocking=True)
        torch.cuda.current_stream(self.counts.device).synchronize()
        return Results(*copies)

    def _list_arrays(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four tensors, in order."""
        return self.counts, self.fields, self.upper, self.per_head

    def select_field(self, name: str) -> Tensor:
        """One of the arrays (head, n − 1)."""
        return self.fields[import_kernels().FIELDS.index(name)]

    def select_head_array(self, name: str) -> Tensor:
        """One of the arrays (head,)."""
        return self.per_head[PER_HEAD.index(name)]

    def multiply_lengths(self, unit: Tensor) -> None:
        """Multiply the arrays in the unit of the value states by a factor for each head."""
        self.fields[: import_kernels().LENGTHS].mul_(unit[:, None])
        self.select_head_array("value_scale").mul_(unit)

    def name_arrays(self) -> dict[str, Tensor]:
        """All arrays by their names."""
        names = (COUNTS, import_kernels().FIELDS, UPPER, PER_HEAD)
        return {
            name: array
            for of, arrays in zip(names, self._list_arrays(), strict=True)
            for name, array in zip(of, arrays, strict=True)
        }


@dataclass(frozen=True)
class Keys:
    """The keys of some heads in order of falling weight, value states divided by ``unit``; float64 unless stated."""

    values: Tensor
    """v as given, in order of position, (head, n, d)."""
    unit: Tensor
    """The power of two by which the value states of a head are divided, (head,)."""
    sink: Tensor
    """Rank of the sink, n if there is none, int64 (head,)."""
    last: Tensor
    """Rank of the last token, int64 (head,)."""
    y: Tensor
    """y = αv, (head, n, d)."""
    sums: Tensor
    """s'_N, (head, n, d)."""
    directions: Tensor
    """v/‖v‖, or 0, float32 (head, n, d)."""
    lengths: Tensor
    """‖v‖, (head, n)."""
    norms: Tensor
    """a = ‖y‖, (head, n)."""
    pulls: Tensor
    """⟨y_0, y⟩, 0 if there is no sink, (head, n)."""


def arrange(weights: Tensor, values: Tensor, *, sink: bool) -> Keys:
    """Sort the keys of some heads and compute the quantities of single keys and their running sums."""
    heads, n, d = values.shape
    sorted_weights, order = weights.abs().sort(dim=-1, descending=True, stable=True)  # −0 becomes 0
    first, last = (weights > weights[:, :1]).sum(-1), (weights >= weights[:, -1:]).sum(-1) - 1
    largest = torch.linalg.vector_norm(values, math.inf, dim=(-2, -1)).double()
    keys = Keys(
        values=values,
        unit=(largest / torch.frexp(largest).mantissa).nan_to_num(nan=1.0).clamp(2.0**-1000, 2.0**1000),
        sink=first if sink else torch.full_like(first, n),
        last=last,
        y=largest.new_empty(values.shape),
        sums=largest.new_empty(values.shape),
        directions=largest.new_empty(values.shape, dtype=torch.float32),
        lengths=largest.new_empty((heads, n)),
        norms=largest.new_empty((heads, n)),
        pulls=largest.new_empty((heads, n)),
    )
    of_single_keys = (keys.y, keys.directions, keys.lengths, keys.norms, keys.pulls)
    import_kernels().order_keys[-(-n // KEY_ROWS), heads](
        values,
        *values.stride(),
        order,
        sorted_weights.double(),
        keys.unit,
        keys.sink,
        *of_single_keys,
        n,
        d,
        rows=KEY_ROWS,
        components=_round_to_power_of_two(d),
        enable_fp_fusion=True,
    )
    import_kernels().cumulate[-(-d // SUM_COMPONENTS), heads](
        keys.y, keys.sink, keys.sums, n, d, rows=SUM_ROWS, components=SUM_COMPONENTS, enable_fp_fusion=True
    )
    return keys


def _round_to_power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


def _median_length(keys: Keys, *, sink: bool) -> Tensor:
    """C, (head,): the median of ‖v‖ over all keys except the sink, or over all keys if there is no sink."""
    n = keys.lengths.shape[-1]
    ranks = torch.arange(n, device=keys.sink.device)
    lengths = keys.lengths.masked_fill(ranks == keys.sink[:, None], math.inf).sort().values
    count = n - 1 if sink else n
    return lengths[:, (count - 1) // 2 : count // 2 + 1].mean(-1)


def _compute_steepness(keys: Keys, value_scale: Tensor, kappas: Sequence[float], scale: str) -> Tensor:
    """B times the factor of g_j − g_i in ξ_ij (eq. 10), for each κ, (head, κ); NaN if C is used and 0."""
    factor = keys.unit
    if scale == "unit":
        factor = value_scale.reciprocal().masked_fill(value_scale == 0, math.nan)
    steepness = factor.new_empty((len(factor), len(kappas)))
    for index, kappa in enumerate(kappas):
        torch.mul(factor, math.sqrt(kappa) * math.sqrt(2 * keys.y.shape[-1]), out=steepness[:, index])
    return steepness.clamp_(max=torch.finfo(torch.float64).max)


def _fill_rho_out(keys: Keys, rho_out: Tensor) -> None:
    """Fill ρ_out for all N, (head, n − 1)."""
    heads, n, d = keys.y.shape
    blocks = -(-n // COSINE_SIDE)
    by_row, by_column = keys.directions.new_empty((2, heads, blocks, n))
    by_tile = keys.directions.new_empty((heads, blocks, blocks))
    diagonal = keys.directions.new_empty((heads, blocks, COSINE_SIDE, COSINE_SIDE))
    of_tiles = (by_row, by_column, by_tile, diagonal)
    import_kernels().cosine_tiles[blocks * blocks, heads](
        keys.directions,
        keys.sink,
        *of_tiles,
        n,
        d,
        blocks,
        side=COSINE_SIDE,
        chunk=COSINE_CHUNK,
        enable_fp_fusion=True,
    )
    import_kernels().closest_pairs[blocks, heads](
        *of_tiles, keys.sink, rho_out, n, blocks, side=COSINE_SIDE, num_warps=1, enable_fp_fusion=True
    )


def _profile_tile(keys: Keys, tile: slice, steepness: Tensor, out: Results) -> None:
    """Fill the rows ``tile`` of ``out`` except ρ_out; lengths are in the unit of ``keys``."""
    products = torch.bmm(keys.sums[:, tile], keys.y.transpose(1, 2))
    flags = _read(keys, tile.start, products, steepness, out)
    if bool(flags.any()):
        _settle(keys, tile.start, products, flags, steepness, out)


def _read(keys: Keys, first: int, products: Tensor, steepness: Tensor, out: Results) -> Tensor:
    """Fill ``out`` from each row of a tile of inner products (head, row, n); returns the flags of its rows."""
    heads, rows, n = products.shape
    d = keys.y.shape[-1]
    flags = torch.empty((heads, rows), dtype=torch.int32, device=products.device)
    import_kernels().profile_rows[rows, heads](
        products,
        keys.y,
        keys.sums,
        keys.lengths,
        keys.norms,
        keys.pulls,
        keys.values,
        *keys.values.stride(),
        keys.unit,
        keys.sink,
        keys.last,
        steepness,
        out.counts,
        out.counts.stride(0),
        out.fields,
        out.fields.stride(0),
        out.upper,
        out.upper.stride(0),
        flags,
        first,
        rows,
        n,
        d,
        steepness.shape[-1],
        slope=error_slope(d, UNIT_ROUNDOFF),
        bend=error_bend(d),
        block=ROW_BLOCK,
        components=_round_to_power_of_two(d),
        num_warps=ROW_WARPS,
        enable_fp_fusion=True,
    )
    return flags


# Flagged rows


@dataclass(frozen=True)
class Rows:
    """Some rows of some heads, each about one N."""

    keys: Keys
    head: Tensor
    """(row,)."""
    split: Tensor
    """N, (row,)."""
    products: Tensor
    """⟨s'_N, y_l⟩, (row, n)."""

    @property
    def selected(self) -> Tensor:
        """Which keys are selected, (row, n)."""
        return torch.arange(self.products.shape[-1], device=self.head.device) < self.split[:, None]

    @property
    def place(self) -> tuple[Tensor, Tensor]:
        """Indices of the rows in an array (head, n − 1)."""
        return self.head, self.split - 1

    def compute_centre(self, *, sink: bool) -> tuple[Tensor, Tensor]:
        """s_N, or s'_N, (row, d), and the energies about it, (row, n)."""
        keys, head = self.keys, self.head
        s, energy = keys.sums[self.place], keys.norms[head] ** 2 - 2 * self.products
        if not sink:
            return s, energy
        rank = keys.sink[head]
        taken = (rank < self.split).double()[:, None]
        y = keys.y[head, rank.clamp(max=energy.shape[-1] - 1)]
        return s + taken * y, energy - 2 * taken * keys.pulls[head]


def _settle(keys: Keys, first: int, products: Tensor, flags: Tensor, steepness: Tensor, out: Results) -> None:
    """Recompute the undecided results of the flagged rows of a tile (head, row, n)."""
    _, n, d = keys.y.shape
    flag = import_kernels()
    late_in_doubt, needs_search = flag.LATE_IN_DOUBT.value, flag.NEEDS_SEARCH.value

    def rows(flagged: Tensor, components: int) -> Iterator[Rows]:
        for head, row in (part.unbind(-1) for part in flagged.nonzero().split(_count_rows_at_once(n, components))):
            yield Rows(keys, head, row + first + 1, products[head, row])

    for part in rows(flags & flag.COUNTS_IN_DOUBT.value > 0, d):
        _recount(part, out)
    for part in rows(flags & late_in_doubt > 0, d):
        _search(part, _find_late(part), steepness, out)
    for part in rows(flags & (late_in_doubt | needs_search) == needs_search, 0):
        g = part.compute_centre(sink=False)[1]
        low = g.masked_fill(part.selected, math.inf).amin(-1, keepdim=True)
        _search(part, part.selected & (g > low), steepness, out)


def _count_rows_at_once(n: int, components: int) -> int:
    """Number of flagged rows that fit into ``TILE_BYTES`` if ``components`` components of each key are used."""
    return max(1, TILE_BYTES // _estimate_row_bytes(n, components))


def _estimate_row_bytes(n: int, components: int) -> int:
    """Upper bound of the memory of a flagged row, in bytes."""
    return 8 * n * (4 * components + 24)


def _compare_distances(y: Tensor, centre: Tensor, other: Tensor) -> Tensor:
    """D_y − D_o by products of differences, (row, n): y (row, n, d), centre (row, d), o the y of rank ``other``."""
    o, centre = y[torch.arange(len(y), device=y.device), other][:, None], centre[:, None]
    return (y - o).mul_((y - centre).add_(o - centre)).sum(-1)


def _find_extremal(y: Tensor, centre: Tensor, energy: Tensor, among: Tensor, sign: int) -> Tensor:
    """Rank of the key farthest from the centre (sign 1) or nearest to it (sign −1) ``among`` some, (row,)."""
    start = (sign * energy).masked_fill(~among, -math.inf).argmax(-1)
    return (sign * _compare_distances(y, centre, start)).masked_fill(~among, -math.inf).argmax(-1)


def _recount(rows: Rows, out: Results) -> None:
    """Recompute counts and radii by differences."""
    selected, y = rows.selected, rows.keys.y[rows.head]
    s, energy = rows.compute_centre(sink=True)
    farthest = _find_extremal(y, s, energy, selected, 1)
    nearest = _find_extremal(y, s, energy, ~selected, -1)
    k_in = (selected & (_compare_distances(y, s, nearest) <= 0)).sum(-1)
    k_out = (~selected & (_compare_distances(y, s, farthest) <= 0)).sum(-1)
    out.counts[0][rows.place], out.counts[1][rows.place] = k_in.int(), k_out.int()
    for name, key in (("r_min", nearest), ("r_max", farthest)):
        out.select_field(name)[rows.place] = torch.linalg.vector_norm(s - rows.keys.y[rows.head, key], dim=-1)


def _find_late(rows: Rows) -> Tensor:
    """Which selected keys are late, g_i > min g_j, by differences, (row, n)."""
    selected, y = rows.selected, rows.keys.y[rows.head]
    s, g = rows.compute_centre(sink=False)
    return selected & (_compare_distances(y, s, _find_extremal(y, s, g, ~selected, -1)) > 0)


def _search(rows: Rows, late: Tensor, steepness: Tensor, out: Results) -> None:
    """Compute upper bounds by a search for the two g_j around g_i + ξ*/c for each selected key i that is not late."""
    selected, split = rows.selected, rows.split[:, None]
    _, g = rows.compute_centre(sink=False)
    ordered = g.masked_fill(selected, math.inf).sort().values
    most = g.shape[-1] - split - 1
    breadth = sum(out.select_field(name)[rows.place] for name in ("a_max_in", "a_max_out", "s_in"))
    for index, factor in enumerate(steepness[rows.head].unbind(-1)):
        c = (factor / breadth).clamp(max=import_kernels().STEEPEST.value)[:, None]
        above = torch.searchsorted(ordered, g + XI_STAR / c)
        ends = (ordered.gather(-1, end.clamp(min=0).minimum(most)) for end in (above - 1, above))
        low, high = (_bound_probability((end - g) * c) for end in ends)
        p = low.maximum(high).masked_fill(late, 0.5).masked_fill(~selected, 0)
        out.upper[0, :, index][rows.place] = 1 - p.amax(-1) / (rows.split + 1)
        out.upper[1, :, index][rows.place] = 1 - p.sum(-1) / rows.split


def _bound_probability(xi: Tensor) -> Tensor:
    """p(ξ) = φ(ξ) ξ/(1 + ξ²) for ξ ≥ 0; ξ < 0 counts as 0."""
    xi = xi.clamp(0, import_kernels().XI_END.value)
    density: Tensor = torch.exp(xi.square() / -2) * DENSITY_0
    return density * xi / (xi.square() + 1)
