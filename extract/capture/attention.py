"""Softmax attention from queries, keys and masks, a block of queries at a time, and quantities derived from it.

Shapes: ``query`` is (B, H, K, D), ``key`` and ``value`` are (B, Hkv, K, D) and (B, Hkv, K, Dv), all as
multiplied. Weights are float32.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from geometry.arrays import I64
from geometry.patterns import HIDDEN, count_rows, sum_patterns
from geometry.quantities import PATTERNS, RATES, TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.every_query import Contexts, measure_queries

T = TypeVar("T")

Patterns = tuple[Tensor, Tensor, Tensor]
"""What the heads of a layer look at, (B, H, P), its chance, (B, P), and the number of queries of each, (B, P)."""

Measure = Callable[[int, Tensor, Tensor], None]
"""Takes weights of a block of queries: the number of the sequence, the weights, and the positions of the queries."""

QUERY_BLOCK = 128
"""Queries computed at a time if SDPA cannot compute the layer's output."""

BLOCK_BYTES = 2**26
"""Bytes of the float32 weights of a block of queries, if the weights of all queries are needed."""

PATTERN_BYTES = {"cpu": 2**21}
"""Bytes of the logits of a block of queries whose patterns are measured, on a CPU few enough for the cache of each of
PyTorch's threads; at most, and elsewhere, half of ``BLOCK_BYTES``, because a GPU needs as much again."""


@dataclass(frozen=True)
class Weighting:
    """How a layer turns the products of its queries and keys into weights."""

    mask: Tensor | None
    """True where a key is visible, (B or 1, H or 1, K, K); None for a plain causal mask."""
    scale: float
    softcap: float | None
    s_aux: Tensor | None
    """Logits of the heads' learned sinks, (H,)."""

    def compute(self, query: Tensor, key: Tensor, rows: Tensor) -> Tensor:
        """Weights (B, H, Q, E) of the queries at the positions ``rows`` (Q,) over the first E keys, in float32.

        With learned sinks, their weights follow those of the keys: (B, H, Q, E + 1).
        """
        logits = compute_logits(query[:, :, rows], key, self.scale, self.softcap)
        visible = find_visible_keys(self.mask, rows, key.shape[2])[..., : key.shape[2]]
        return compute_softmax(logits, visible, self.s_aux)


def compute_query_weights(query: Tensor, key: Tensor, rows: Tensor, how: Weighting) -> tuple[Tensor, Tensor | None]:
    """Softmax weights of the queries at the positions ``rows`` (Q,), float32 (B, H, Q, K), computed in float32.

    Also returns the weights of the heads' learned sinks, float32 (B, H, Q); None if the heads have none. Each query is
    multiplied with the keys separately: with one product for all, rounding would depend on the number of queries.
    """
    float_key, keys = key.float(), key.shape[2]
    weights = torch.cat([how.compute(query, float_key, row) for row in rows.split(1)], dim=2)
    return weights[..., :keys], None if how.s_aux is None else weights[..., keys]


def compute_received_attention(query: Tensor, key: Tensor, how: Weighting) -> Tensor:
    """Mean weight that each key gets from the queries at and after its position, float32 (B, H, K).

    The sum over all queries divided by (K - position), as in ``eval_sink_open_source.py`` of Attention-Sink (Gu et al.
    2025); a query whose window hides the key counts with 0. ``BLOCK_BYTES`` of weights, or those of one
    query, are in memory at a time.
    """
    float_key, keys = key.float(), key.shape[2]
    received = query.new_zeros((*query.shape[:2], keys), dtype=torch.float32)
    together = max(1, BLOCK_BYTES // received.nbytes)
    for rows in torch.arange(keys, device=key.device).split(together):
        end = int(rows[-1]) + 1
        received[..., :end] += how.compute(query, float_key[:, :, :end], rows)[..., :end].sum(dim=2)
    return received / torch.arange(keys, 0, -1, device=key.device)


@dataclass(frozen=True)
class EveryQuery:
    """What all queries of a layer but the first select."""

    first_keys: I64
    """The first key that each query sees, (K,)."""
    contexts: Contexts
    measures: Tensor
    """``geometry.quantities.QueryMeasures``, to be filled, float32 (B, H, K, M) on the CPU; NaN at the first query."""
    means: Tensor
    """Means of ``RATES`` by class of context and N, (B, H, 3, C, G), as ``Contexts`` has them; NaN without a query."""
    largest: Tensor
    """Positions and weights of the ``TOP_KEYS`` keys of largest weight, float32 (B, H, K, 2, TOP_KEYS), likewise."""

    @classmethod
    def begin(cls, batch: int, heads: int, first_keys: I64) -> "EveryQuery":
        """Of ``heads`` query heads in ``batch`` sequences, before any query is measured."""
        contexts, keys = Contexts.of(first_keys), len(first_keys)
        measures = torch.full((batch, heads, keys, len(list_declared(QueryMeasures))), torch.nan)
        none = torch.from_numpy(np.where(contexts.counts > 0, np.float32(0), np.float32(np.nan)))
        means = none.expand(batch, heads, len(RATES), -1, -1).contiguous()
        largest = torch.full((batch, heads, keys, 2, TOP_KEYS), torch.nan)
        return cls(np.ascontiguousarray(first_keys), contexts, measures, means, largest)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """What is captured, as ``extract.capture.buffers.OF_EVERY_QUERY``."""
        return self.measures, self.means, self.largest

    def add(self, value: Tensor, index: int, weights: Tensor, rows: Tensor) -> None:
        """Measure consecutive queries of one sequence from their weights, float32 (H, R, E), which are overwritten.

        ``value`` has the value states of at least the E first keys, (B, Hkv, K, Dv). Memory: ``estimate_block_bytes``
        for each of PyTorch's threads, among which KV heads are divided. If ``value`` is on a CUDA device, so is the
        product, with the memory that ``measure_queries`` states for each thread.
        """
        place = slice(int(rows[0]), int(rows[-1]) + 1)
        states = value[index, :, : place.stop].float().cpu().contiguous().numpy()
        given = weights.cpu().unflatten(0, (len(states), -1)).numpy()
        where = str(value.device) if value.device.type == "cuda" else "cpu"

        def measure(kv_head: int) -> None:
            measures, means, largest = (
                of[index].unflatten(0, (len(states), -1))[kv_head].numpy() for of in self.tensors
            )
            given_here = given[kv_head], states[kv_head : kv_head + 1], self.first_keys[place]
            found, k_in, k_out = measure_queries(*given_here, largest[:, place], where)
            measures[:, place] = np.stack([getattr(found, name) for name in list_declared(QueryMeasures)], axis=-1)
            added = np.moveaxis(self.contexts.average(k_in, k_out, place), 0, 1)
            means[..., : added.shape[-1]] += added.astype(np.float32)

        run_on_threads(measure, len(states), torch.device("cpu"))


def compute_head_patterns(
    query: Tensor, key: Tensor, tokens: Tensor, how: Weighting, measure: Measure | None = None
) -> Patterns:
    """Means of ``geometry.patterns`` over all queries but the first, float32 (B, H, P), and their chance, (B, P).

    Also returns the number of queries of each pattern, (B, P); where it is 0, the others are NaN. ``tokens`` are the
    ids of the keys, (B, K). On the CPU, sequences are divided among PyTorch's threads. The numbers of a block of
    queries of a sequence are in memory at a time. ``measure`` is called with the number of a sequence, the weights of a
    block of its queries, (H, R, E), and their positions, (R,).
    """
    sinks = None if how.s_aux is None else pad(how.s_aux.float(), (0, 1), value=float("-inf"))

    def sum_sequence(index: int) -> Tensor:
        mask = None if how.mask is None else how.mask[min(index, len(how.mask) - 1)]
        given = query[index], key[index].float(), tokens[index], replace(how, mask=mask, s_aux=sinks)
        return _sum_sequence(*given, None if measure is None else partial(measure, index))

    sums = torch.stack(run_on_threads(sum_sequence, len(query), query.device))
    counts = count_rows(tokens, None if how.mask is None else how.mask[:, 0, :, 0])
    means = sums / counts[:, None]
    return means[:, :-1], means[:, -1], counts


def run_on_threads(function: Callable[[int], T], count: int, device: torch.device) -> list[T]:
    """The results of ``function`` for the numbers below ``count``, in order, on as many threads as PyTorch uses.

    Each of them computes with an equal share of PyTorch's threads: small operations are faster on one thread than on
    several that wait for one another. On other devices than the CPU the calls follow one another.
    """
    threads = torch.get_num_threads()
    workers, inference = min(count, threads), torch.is_inference_mode_enabled()
    if device.type != "cpu" or workers < 2:
        return [function(index) for index in range(count)]

    def call(index: int) -> T:
        with torch.inference_mode(inference):
            return function(index)

    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,)) as pool:
            return list(pool.map(call, range(count)))
    finally:
        torch.set_num_threads(threads)  # that of this thread is unchanged, but not that of threads that begin later


def _sum_sequence(
    query: Tensor,
    key: Tensor,
    tokens: Tensor,
    how: Weighting,
    measure: Callable[[Tensor, Tensor], None] | None,
) -> Tensor:
    """Sums of the patterns of one sequence, float32 (H + 1, P): a last head is that of chance, with logits of 0.

    ``query`` is (H, K, D), ``key`` float32 (Hkv, K, D), ``tokens`` (K,), the mask (1 or H, K, K), the sinks (H + 1,).
    ``measure`` is called with the weights of a block of queries, (H, R, E), and their positions, (R,).
    """
    heads, keys, _ = query.shape
    sums = query.new_zeros((heads + 1, len(PATTERNS)), dtype=torch.float32)
    each, most = (heads + 1) * keys * torch.float32.itemsize, BLOCK_BYTES // 2
    for_cache = PATTERN_BYTES.get(query.device.type, most) * torch.get_num_threads()
    room = min(for_cache, most) if measure is None else most  # what queries share is computed for each block again
    blocks = torch.arange(1, keys, device=key.device).split(max(1, room // each))
    memory = sums.new_empty((heads + 1) * len(blocks[0]) * keys)
    for rows in blocks:
        end = int(rows[-1]) + 1
        logits = memory[: (heads + 1) * len(rows) * end].view(heads + 1, len(rows), end)
        grouped = group_by_kv_head(query[None, :, rows].float() * how.scale, key[None])[0]
        torch.bmm(grouped, key[:, :end].mT, out=logits[:heads].view(len(grouped), -1, end))
        if how.softcap is not None:
            logits.div_(how.softcap).tanh_().mul_(how.softcap)
        logits[heads] = 0
        hide_keys(logits, how.mask, rows)
        sums += sum_patterns(logits, tokens[:end], rows, how.s_aux, keep=measure is not None)
        if measure is not None:
            measure(logits[:heads], rows)
    return sums


def hide_keys(logits: Tensor, mask: Tensor | None, rows: Tensor) -> None:
    """Hide the keys that the queries at the positions ``rows`` do not see; a last head sees what the first does.

    ``logits`` are (H + 1, Q, K), of the keys up to the last row; ``mask`` is that of one sequence.
    """
    if mask is None:
        after = torch.ones(len(rows), len(rows), dtype=torch.bool, device=rows.device).triu_(1)
        logits[:, :, rows[0] :].masked_fill_(after, HIDDEN)
    else:
        hidden = ~mask[:, rows, : logits.shape[-1]]
        logits[:-1].masked_fill_(hidden, HIDDEN)
        logits[-1:].masked_fill_(hidden[:1], HIDDEN)


def find_visible_keys(mask: Tensor | None, rows: Tensor, keys: int) -> Tensor:
    """Which keys the queries at the positions ``rows`` see, bool (B or 1, H or 1, Q, K); all up to them if no mask."""
    if mask is None:
        return (torch.arange(keys, device=rows.device) <= rows[:, None])[None, None]
    return mask[:, :, rows]


def compute_logits(query: Tensor, key: Tensor, scale: float, softcap: float | None) -> Tensor:
    """Logits, float32 (B, H, Q, K), of some queries (B, H, Q, D) over float32 keys (B, Hkv, K, D), the cap applied."""
    logits = group_by_kv_head(query.float(), key) @ key.transpose(-1, -2)  # (B, Hkv, H / Hkv * Q, K)
    logits = logits.reshape(*query.shape[:3], key.shape[2]) * scale
    return logits if softcap is None else torch.tanh(logits / softcap) * softcap


def compute_softmax(logits: Tensor, visible: Tensor, s_aux: Tensor | None) -> Tensor:
    """Softmax of logits (B, H, Q, K) over the visible keys, followed by the learned sink if there is one."""
    logits = torch.where(visible, logits, float("-inf"))
    if s_aux is None:
        return logits.softmax(dim=-1)
    sink = s_aux.float().reshape(1, -1, 1, 1).expand(*logits.shape[:3], 1)
    return torch.cat([logits, sink], dim=-1).softmax(dim=-1)


def group_by_kv_head(tensor: Tensor, key: Tensor) -> Tensor:
    """Reshape (B, H, Q, X) to (B, Hkv, H / Hkv * Q, X): query heads that share a KV head are concatenated."""
    return tensor.reshape(tensor.shape[0], key.shape[1], -1, tensor.shape[-1])


def attend(query: Tensor, key: Tensor, value: Tensor, how: Weighting) -> Tensor:
    """Attention output (B, K, H, D), ``QUERY_BLOCK`` queries at a time."""
    float_key, blocks = key.float(), []
    for rows in torch.split(torch.arange(key.shape[2], device=key.device), QUERY_BLOCK):
        weights = how.compute(query, float_key, rows)[..., : key.shape[2]].to(value.dtype)
        blocks.append((group_by_kv_head(weights, key) @ value).reshape(*weights.shape[:3], value.shape[-1]))
    return torch.cat(blocks, dim=2).transpose(1, 2).contiguous()
