"""Ablation of heads: the change of a model's loss when the output of one head is replaced, head by head.

The heads of one layer are the rows of one batch, and a pass begins at their layer (``extract.resuming``), where
attention is computed once for all rows. A head therefore costs, on average, little more than the layers above it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from extract.capture import Attention
from extract.interventions import Call, Recorder, intervene, run_base
from extract.losses import compare, compute_log_probabilities
from extract.policies import LargestKeys
from extract.resuming import LayerReachedError, PlainPass, ResumableModel
from extract.sparsity import SparseEdit, estimate_row_bytes
from storage.errors import UserError
from storage.zarr.layers import list_attending_layers

Replacement = Literal["zero", "mean", "sink", "selected"]
"""What z is replaced by: 0; its mean; the value state of position 0, as if a query attended only to that; or z over the
``SELECTED`` keys of the largest weights, which are renormalised."""

REPLACEMENTS: tuple[Replacement, ...] = get_args(Replacement)

SELECTED = 16
"""Keys that each query of a head attends to under ``selected``."""

ROW_BYTES = {"cpu": 2**27, "cuda": 2**31}
"""Bytes of the rows of one pass, by type of device: on a CPU, more than its caches hold is slower."""


@dataclass(frozen=True)
class LayerEffects:
    """Effects of the heads of one layer on one sequence, by kind of replacement and head."""

    layer: int
    plain_loss: float
    """Mean next-token cross entropy of the plain pass, in nats."""
    loss: NDArray[np.float64]
    """The same with the head replaced, (kinds, heads); NaN for a head that was not requested, and for ``sink`` if a
    window hides position 0 from some query of the layer."""
    kl: NDArray[np.float64]
    """Mean over positions of KL(p_0 ‖ p) in nats, (kinds, heads); NaN where ``loss`` is."""


def replace(output: Tensor, call: Call, head: int, kind: Replacement, mean: Tensor | None) -> None:
    """Replace z of one head in a layer's output (B, K, H, Dv), in place; ``mean`` is (H, Dv) or (B, H, Dv).

    Raises ``ValueError`` if ``kind`` is ``mean`` and no mean is given.
    """
    if kind == "zero":
        output[:, :, head] = 0
    elif kind == "sink":
        kv_head = head // (call.query.shape[1] // call.key.shape[1])
        first = call.value[:, kv_head, :1].expand_as(output[:, :, head])
        output[:, :, head] = torch.where(call.sees_first()[..., None], first, output[:, :, head])
    elif kind == "selected":
        policy = LargestKeys("same_n", "", np.full((call.layer + 1, 1), SELECTED))
        output[:, :, head] = SparseEdit(policy).output(call.select_head(head))[:, :, 0]
    elif mean is None:
        raise ValueError(f"there is no mean of the outputs of layer {call.layer}")
    else:
        output[:, :, head] = mean[..., head, :].to(output).reshape(-1, 1, output.shape[-1])


@dataclass
class _Rows:
    """Replaces the output of one head in each row of a batch whose rows are copies of one sequence."""

    layer: int
    means: Tensor | None
    """Z that heads are replaced by under ``mean``, (H, Dv)."""
    rows: Sequence[tuple[Replacement, int]] = ()
    """The kind and the head of each row."""
    _own: Tensor | None = field(default=None, init=False)

    def output(self, call: Call) -> Tensor:
        """Z of the rows, (R, K, H, Dv); the layer's own z is computed once, for all rows of all passes."""
        if call.layer != self.layer:
            return call.output()
        if self._own is None:
            self._own = call.plain(1)
            raise LayerReachedError
        outputs, one = self._own.repeat(len(self.rows), 1, 1, 1), call.select_first()
        for row, (kind, head) in enumerate(self.rows):
            replace(outputs[row : row + 1], one, head, kind, self.means)
        return outputs


def ablate(
    resumable: ResumableModel,
    attention: Attention,
    ids: Tensor,
    *,
    kinds: Sequence[Replacement],
    means: Mapping[int, Tensor] | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[tuple[int, int]] | None = None,
) -> Iterator[LayerEffects]:
    """Replace one head after another over one sequence of token ids, int64 (K,), layer by layer.

    Yields the effects of each layer as soon as they are measured, in ascending order. Heads are those of ``layers``, or
    some of them, each as (layer, head); all if None. Under ``mean`` they are replaced by z of ``means``, by layer
    (H, Dv): see ``compute_mean_of_others``. ``ValueError`` if there are none; ``UserError`` as ``intervene``.

    Memory beside the model's: logits and hidden states of the plain pass, K * (V + layers * hidden size) numbers of the
    model's type; K * V logarithms of probabilities in float32; and one pass of ``count_rows_per_pass`` rows, at most
    ``ROW_BYTES`` or the size of one row.
    """
    if "mean" in kinds and means is None:
        raise ValueError("heads cannot be replaced by their means: no means are given")
    chosen = sorted(set(list_attending_layers(attention) if layers is None else layers))
    recorder = Recorder()
    with intervene(resumable.model, attention, recorder):
        passed = resumable.run_plain(ids, chosen)
    plain = compute_log_probabilities(passed.logits)
    plain_loss = float(compare(passed.logits[None], plain, ids).loss[0])
    for layer in chosen:
        count = attention.layers[layer].heads
        edit = _Rows(layer, means[layer] if means is not None and "mean" in kinds else None)
        wanted = [
            (kind, head)
            for kind, head in product(kinds, range(count))
            if (heads is None or (layer, head) in heads) and (kind != "sink" or recorder.sees_first[layer])
        ]
        loss, kl = np.full((2, len(kinds), count), np.nan)
        for rows, logits in _iterate_logits(resumable, attention, passed, edit, wanted):
            compared = compare(logits, plain, ids)
            at = [kinds.index(kind) for kind, _ in rows], [head for _, head in rows]
            loss[at], kl[at] = compared.loss, compared.kl
        yield LayerEffects(layer, plain_loss, loss, kl)


def _iterate_logits(
    resumable: ResumableModel,
    attention: Attention,
    passed: PlainPass,
    edit: _Rows,
    wanted: Sequence[tuple[Replacement, int]],
) -> Iterator[tuple[Sequence[tuple[Replacement, int]], Tensor]]:
    """The logits (R, K, V) of the wanted replacements of one layer, as many rows at a time as fit."""
    together = count_rows_per_pass(resumable.model, passed.ids.shape[1])
    with intervene(resumable.model, attention, edit):
        early = resumable.run_until_attention(passed, edit.layer)
    for start in range(0, len(wanted), together):
        edit.rows = wanted[start : start + together]
        with intervene(resumable.model, attention, edit):
            logits = resumable.run(passed, edit.layer, len(edit.rows), early)
        yield edit.rows, logits


def count_rows_per_pass(model: PreTrainedModel, keys: int) -> int:
    """Rows of one pass: as many as fit into ``ROW_BYTES``, at least one, however much memory is free at the moment."""
    return max(1, ROW_BYTES.get(model.device.type, ROW_BYTES["cpu"]) // estimate_row_bytes(model, keys))


def estimate_ablation_bytes(model: PreTrainedModel, keys: int) -> int:
    """Most bytes that ``ablate`` needs over ``keys`` tokens in addition to the model's, from the model's sizes."""
    text = model.config.get_text_config(decoder=True)
    passed = model.dtype.itemsize * (text.vocab_size + text.num_hidden_layers * text.hidden_size)
    rows = count_rows_per_pass(model, keys) * estimate_row_bytes(model, keys)
    return int(keys * (passed + torch.float32.itemsize * text.vocab_size) + rows)


def compute_mean_outputs(model: PreTrainedModel, attention: Attention, ids: Tensor) -> dict[int, Tensor]:
    """Mean of z over the positions of each of S sequences of ids (S, K), by layer, float32 (S, H, Dv) on the CPU.

    One plain pass for each sequence. Raises as ``intervene``.
    """
    recorded: list[dict[int, Tensor]] = []
    for one in ids:
        recorder = Recorder()
        run_base(model, attention, recorder, one[None])
        recorded.append({layer: mean.cpu() for layer, mean in recorder.means.items()})
    return {layer: torch.cat([means[layer] for means in recorded]) for layer in recorded[0]}


def compute_mean_of_others(means: Mapping[int, Tensor], sequence: int) -> dict[int, Tensor]:
    """Mean of z over positions and all sequences but one, by layer, (H, Dv), from ``compute_mean_outputs`` of all.

    ``UserError`` if there is no other sequence.
    """
    count = len(next(iter(means.values())))
    if count < 2:
        raise UserError(
            "A head is replaced by its mean over other sequences, but there is only one; set sequences to 2 or more"
        )
    return {layer: (of_all.sum(dim=0) - of_all[sequence]) / (count - 1) for layer, of_all in means.items()}
