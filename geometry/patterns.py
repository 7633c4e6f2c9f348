"""What heads look at: mean weights on keys in known relations to the query, over all query rows of a sequence.

For the query at position q, q ≥ 1, of tokens x, the weight on

- ``sink``: position 0;
- ``self``: position q;
- ``previous``: position q − 1;
- ``local``: the last ``LOCAL_KEYS`` positions up to q;
- ``duplicate``: every j < q with x_j = x_q, in rows that have one;
- ``induction``: every j + 1 with such a j, in the same rows;
- ``sink_matched``, ``sink_unmatched``: position 0, in the rows that have such a j, and in those that have none;

and ``entropy``, −Σ α ln α over ln(q + 1). The definitions of ``duplicate``, ``induction`` and ``previous`` are those of
``detect_head`` in TransformerLens. Chance is what uniform weights over the keys that a query sees give on the same
tokens: the same function, called with a head whose logits are all equal.

Rows are added in blocks, on the device of the logits, so that no matrix of all queries and keys is needed. Of a
softmax, only the weights that are added are divided by its sum. H is a number of heads, P the length of
``geometry.quantities.PATTERNS``, in whose order the patterns are.
"""

import torch
from torch import Tensor

from geometry.quantities import LOCAL_KEYS, PATTERNS

HIDDEN = -1e30
"""Logit of a key that a row does not see: finite, because 0 times infinity is not a number."""


def sum_patterns(
    logits: Tensor, tokens: Tensor, rows: Tensor, sinks: Tensor | None = None, scratch: Tensor | None = None
) -> Tensor:
    """Sums of the patterns over some query rows of one sequence, float32 (H, P).

    Parameters
    ----------
    logits
        Logits of the rows, float32 (H, R, K), contiguous; ``HIDDEN`` for the keys that a row does not see. Overwritten.
    tokens
        Token ids of the K keys, (K,).
    rows
        Positions of the rows, ascending by 1, (R,), from 1 to K - 1.
    sinks
        Logits of the heads' learned sinks, (H,), which take a part of the weight; -inf for a head without.
    scratch
        Memory for as many numbers as ``logits`` has, float32 (H, R, K); by default it is allocated.
    """
    largest = logits.amax(dim=-1, keepdim=True)
    if sinks is not None:
        largest = largest.maximum(sinks[:, None, None])
    exponentials = torch.exp(logits.sub_(largest), out=scratch)
    total = exponentials.sum(dim=-1)
    norm = total if sinks is None else total + (sinks[:, None] - largest[..., 0]).exp()
    entropy = (total * norm.log() - logits.mul_(exponentials).sum(dim=-1)) / norm  # the sum of -a (l - ln norm)
    sums = _sum_keys(exponentials, 1 / norm, tokens, rows)
    sums["entropy"] = (entropy / torch.log1p(rows)).sum(dim=-1)
    return torch.stack([sums[name] for name in PATTERNS], dim=-1)


def count_rows(tokens: Tensor) -> Tensor:
    """Number of rows of each pattern in whole sequences of token ids (B, K), int64 (B, P)."""
    ordered = tokens.sort(dim=-1).values
    matched = (ordered[:, 1:] == ordered[:, :-1]).sum(dim=-1)  # all but the first occurrences
    every = torch.full_like(matched, tokens.shape[1] - 1)
    of_some = {"duplicate": matched, "induction": matched, "sink_matched": matched, "sink_unmatched": every - matched}
    return torch.stack([of_some.get(name, every) for name in PATTERNS], dim=-1)


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
