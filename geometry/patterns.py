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
tokens: the same functions, called with ``make_uniform``.

Rows are added in blocks, on the device of the weights, so that no matrix of all queries and keys is needed. P is the
length of ``geometry.quantities.PATTERNS``, in whose order the patterns are.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from geometry.quantities import LOCAL_KEYS, PATTERNS


def sum_patterns(weights: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:
    """Sums of the patterns over some query rows, (B, H, P), in the type of the weights.

    Memory: as many numbers as ``weights`` has, and ``len(PATTERNS)`` for each sequence, row and key.

    Parameters
    ----------
    weights
        Softmax weights of the rows, (B, H, R, K); 0 for the keys that a row does not see.
    tokens
        Token ids of the K keys, (B, K).
    rows
        Positions of the rows, (R,), from 1 to K - 1.
    """
    sums = weights.flatten(2) @ _mask_keys(tokens, rows).to(weights.dtype).flatten(2).mT
    entropy = torch.special.entr(weights).sum(dim=-1) @ (1 / torch.log1p(rows)).to(weights.dtype)
    return torch.cat([sums, entropy[..., None]], dim=-1)


def count_rows(tokens: Tensor) -> Tensor:
    """Number of rows of each pattern in whole sequences of token ids (B, K), int64 (B, P)."""
    ordered = tokens.sort(dim=-1).values
    matched = (ordered[:, 1:] == ordered[:, :-1]).sum(dim=-1)  # all but the first occurrences
    every = torch.full_like(matched, tokens.shape[1] - 1)
    of_some = {"duplicate": matched, "induction": matched, "sink_matched": matched, "sink_unmatched": every - matched}
    return torch.stack([of_some.get(name, every) for name in PATTERNS], dim=-1)


def make_uniform(visible: Tensor) -> Tensor:
    """Uniform weights over the visible keys, float32 (B, 1, R, K), from a mask, bool (B, 1, R, K)."""
    return visible.float() / visible.sum(dim=-1, keepdim=True)


def _mask_keys(tokens: Tensor, rows: Tensor) -> Tensor:
    """Which keys a row's weight is added over, by pattern but the entropy, bool (B, P - 1, R, K)."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    back = rows[:, None] - positions  # (R, K); negative after the query
    duplicate = (tokens[:, rows, None] == tokens[:, None]) & (back > 0)
    first, has_match = positions == 0, duplicate.any(dim=-1, keepdim=True)
    masks = {
        "sink": first,
        "self": back == 0,
        "previous": back == 1,
        "local": (back >= 0) & (back < LOCAL_KEYS),
        "duplicate": duplicate,
        "induction": pad(duplicate[..., :-1], (1, 0)),
        "sink_matched": first & has_match,
        "sink_unmatched": first & ~has_match,
    }
    return torch.stack([masks[name].expand_as(duplicate) for name in PATTERNS[:-1]], dim=1)
