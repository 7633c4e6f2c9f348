"""What heads look at: mean weights on keys in known relations to the query, over all query rows of a sequence.

For the query at position q, q ≥ 1, of tokens x, the weight on

- ``sink``: position 0, in the rows whose window does not hide it;
- ``self``: position q;
- ``previous``: position q − 1;
- ``local``: the last ``LOCAL_KEYS`` positions up to q;
- ``duplicate``: every j < q with x_j = x_q, in rows that have one;
- ``induction``: every j + 1 with such a j, in the same rows;
- ``sink_matched``, ``sink_unmatched``: as ``sink``, in the rows that have such a j, and in those that have none;

and ``entropy``, −Σ α ln α over ln(q + 1). The definitions of ``duplicate``, ``induction`` and ``previous`` are those of
``detect_head`` in TransformerLens. Chance is what uniform weights over the keys that a query sees give on the same
tokens: the same function, called with a head whose logits are all equal.

Rows are added in blocks, on the device of the logits, so that no matrix of all queries and keys is needed: on the CPU
by ``geometry.patterns``, elsewhere by PyTorch. Of a softmax, only the weights that are added are divided by its
sum. H is a number of heads, P the length of ``geometry.quantities.PATTERNS``, in whose order the patterns are.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from geometry.accelerate import compile_kernel, compile_row_kernel, compile_row_sum_kernel, larger
from geometry.arrays import F32, F64, I64
from geometry.powers import power_of_two
from geometry.quantities import LOCAL_KEYS, PATTERNS

LEAST = -87.0  # Least difference of logits whose power of e is not taken as 0; that of -88 is too small for float32
PIECE = 1024  # Keys whose float32 exponentials are added before the sum is added to one in float64


@compile_row_sum_kernel
def find_largest(row: F32, stop: int) -> np.float32:
    """The largest of the first logits of a row."""
    most = np.float32(-np.inf)
    for k in range(np.uint64(stop)):
        most = larger(most, row[k])
    return most


@compile_row_sum_kernel
def exponentiate(row: F32, start: int, stop: int, largest: np.float32) -> tuple[float, float]:
    """Replace some logits l of a row by e^(l − largest), relative error below 10⁻⁷ (2 + largest − l).

    Returns their sum, and that of their products with l − largest.
    """
    total, weighted = np.float32(0.0), np.float32(0.0)
    for k in range(np.uint64(start), np.uint64(stop)):
        below = row[k] - largest
        raised = larger(np.float32(LEAST), below)
        exponential = power_of_two(raised * np.float32(1.0 / math.log(2.0)))
        exponential = exponential if below >= raised else np.float32(0.0)
        row[k] = exponential
        total += exponential
        weighted += exponential * raised
    return float(total), float(weighted)


@compile_kernel
def add_rows(logits: F32, first: int, earlier: I64, sinks: F32, sums: F64, keep: bool) -> None:
    """Add the patterns of rows from position ``first`` on to ``sums``, (H, P).

    logits: (H, R, K), of which only keys up to the row's position are read, and overwritten; earlier: (K,), the
    position of the last earlier copy of each token, -1 if there is none; sinks: (H,), the logits of the learned sinks;
    keep: whether the logits are overwritten by the weights.
    """
    for head in range(logits.shape[0]):
        for place in range(logits.shape[1]):
            row, stop = logits[head, place], first + place + 1
            norm = add_row(row, first + place, earlier, sinks[head], sums[head])
            if keep:
                for key in range(row.size):
                    row[key] = np.float32(row[key] / norm) if key < stop else np.float32(0.0)


@compile_row_kernel
def add_row(row: F32, q: int, earlier: I64, sink: np.float32, sums: F64) -> float:
    """Add the patterns of the row at position q, (K,), to ``sums``, (P,); returns the sum that divides its weights."""
    largest = max(find_largest(row, q + 1), sink)
    total, weighted, local = 0.0, 0.0, 0.0
    for start in range(0, q + 1, PIECE):
        part = exponentiate(row, start, min(start + PIECE, q + 1), largest)
        total, weighted = total + part[0], weighted + part[1]
    norm = total + math.exp(sink - largest)
    for key in range(max(0, q + 1 - LOCAL_KEYS), q + 1):
        local += row[key]
    duplicate, induction, copy = 0.0, 0.0, earlier[q]
    while copy >= 0:
        duplicate, induction = duplicate + row[copy], induction + row[copy + 1]
        copy = earlier[copy]
    rest, own, previous = np.float64(row[0]), np.float64(row[q]), np.float64(row[q - 1])
    matched = rest if earlier[q] >= 0 else 0.0
    weights = (rest, own, previous, local, duplicate, induction, matched, rest - matched)
    for pattern in range(len(weights)):  # in the order of PATTERNS, whose last is the entropy
        sums[pattern] += weights[pattern] / norm
    sums[-1] += (total * math.log(norm) - weighted) / norm / math.log1p(q)
    return norm


HIDDEN = -1e30  # Logit of a key that a row does not see: finite, because 0 times infinity is not a number


def sum_patterns(
    logits: Tensor, tokens: Tensor, rows: Tensor, sinks: Tensor | None = None, *, keep: bool = False
) -> Tensor:
    """Sums of the patterns over some query rows of one sequence, float32 (H, P).

    ``logits``: of the rows, float32 (H, R, K), contiguous, ``HIDDEN`` for the keys that a row does not see;
    overwritten, by the weights of the keys if ``keep``. ``tokens``: ids of the K keys. ``rows``: their positions,
    ascending by 1, from 1 to K − 1. ``sinks``: logits of the heads' learned sinks, (H,), which take a part of the
    weight; -inf for a head without. On the CPU, heads are divided among as many threads as PyTorch uses.
    """
    if sinks is None:
        sinks = logits.new_full(logits.shape[:1], -torch.inf)
    if logits.device.type != "cpu":
        return sum_in_passes(logits, tokens, rows, sinks, keep=keep)
    first, earlier = int(rows[0]), find_earlier_copies(tokens)
    sums = torch.zeros(len(logits), len(PATTERNS), dtype=torch.float64)
    threads = torch.get_num_threads()
    parts = [tensor.tensor_split(threads) for tensor in (logits, sinks, sums)]
    tasks = [
        (heads.numpy(), first, earlier, of.numpy(), to.numpy(), keep) for heads, of, to in zip(*parts, strict=True)
    ]
    if threads == 1:
        add_rows(*tasks[0])
    else:
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(add_rows, *zip(*tasks, strict=True)))
    return sums.float()


def find_earlier_copies(tokens: Tensor) -> I64:
    """The position of the last earlier copy of each token of a text (K,), -1 if there is none, (K,)."""
    text = tokens.numpy()
    order = text.argsort(kind="stable")
    same = text[order[1:]] == text[order[:-1]]
    earlier = np.full(len(text), -1)
    earlier[order[1:][same]] = order[:-1][same]
    return earlier


def sum_in_passes(logits: Tensor, tokens: Tensor, rows: Tensor, sinks: Tensor, *, keep: bool = False) -> Tensor:
    """``sum_patterns`` by operations of PyTorch, which a GPU runs; as much memory again as that of the logits."""
    largest = logits.amax(dim=-1, keepdim=True).maximum(sinks[:, None, None])
    exponentials = logits.sub_(largest).exp()
    total = exponentials.sum(dim=-1)
    norm = total + (sinks[:, None] - largest[..., 0]).exp()
    entropy = (total * norm.log() - logits.mul_(exponentials).sum(dim=-1)) / norm  # the sum of -a (l - ln norm)
    if keep:
        torch.div(exponentials, norm[..., None], out=logits)
    sums = _sum_keys(exponentials, 1 / norm, tokens, rows)
    sums["entropy"] = (entropy / torch.log1p(rows)).sum(dim=-1)
    return torch.stack([sums[name] for name in PATTERNS], dim=-1)


def count_rows(tokens: Tensor, sees_sink: Tensor | None = None) -> Tensor:
    """Number of rows of each pattern in whole sequences of token ids (B, K), int64 (B, P).

    ``sees_sink`` is True where the query at a position sees position 0, (B or 1, K); None: everywhere.
    """
    ordered, place = tokens.sort(dim=-1, stable=True)
    matched = torch.zeros_like(tokens, dtype=torch.bool)
    matched.scatter_(-1, place[:, 1:], ordered[:, 1:] == ordered[:, :-1])  # all but the first occurrences
    every = torch.ones_like(matched)
    seen = every if sees_sink is None else sees_sink.expand_as(matched)
    of_some = {"duplicate": matched, "induction": matched}
    of_some |= {"sink": seen, "sink_matched": seen & matched, "sink_unmatched": seen & ~matched}
    return torch.stack([of_some.get(name, every)[:, 1:].sum(dim=-1) for name in PATTERNS], dim=-1)


def _sum_keys(exponentials: Tensor, scale: Tensor, tokens: Tensor, rows: Tensor) -> dict[str, Tensor]:
    """Sums over rows of the weights on some keys, (H,): the exponentials (H, R, K) of a row times its scale (H, R)."""
    keys, flat = exponentials.shape[-1], exponentials.flatten(1)
    before = torch.arange(LOCAL_KEYS, device=rows.device)
    last = rows + keys * torch.arange(len(rows), device=rows.device)
    near = flat.index_select(1, (last[:, None] - before.minimum(rows[:, None])).flatten())
    near = near.unflatten(1, (len(rows), LOCAL_KEYS)) * scale[..., None] * (before <= rows[:, None])
    copies = tokens[rows, None] == tokens
    copies[:, rows[0] :].tril_(-1)
    place = copies.flatten().nonzero()[:, 0]
    of_row = scale.index_select(1, place // keys)
    sink, matched = exponentials[..., 0] * scale, copies.any(dim=-1)
    return {
        "sink": sink.sum(dim=-1),
        "self": near[..., 0].sum(dim=-1),
        "previous": near[..., 1].sum(dim=-1),
        "local": near.sum(dim=(-2, -1)),
        "duplicate": (flat.index_select(1, place) * of_row).sum(dim=-1),
        "induction": (flat.index_select(1, place + 1) * of_row).sum(dim=-1),
        "sink_matched": (sink * matched).sum(dim=-1),
        "sink_unmatched": (sink * ~matched).sum(dim=-1),
    }
