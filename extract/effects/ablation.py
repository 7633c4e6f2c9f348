"""Ablation of heads: the change of a model's loss when the output of one head is replaced, head by head.

The heads of one layer are the rows of one batch, copies of one sequence, in passes that begin at their layer l: the
whole model is called, the layers before l return their input, and l gets the hidden states of a plain pass. Masks,
position embeddings, final norm and logits are therefore the model's own. A test in advance finds the layers at which
this equals the plain pass bit by bit; at others (those that use keys and values of earlier layers), and in models whose
layers are not found, a pass begins at the first layer. Copies are equal until the attention of layer l is over, so that
the parts of the layer before it run once. A head costs, on average, little more than the layers above it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module, ModuleList
from transformers import PreTrainedModel

from extract.capture.one_pass import TOLERANCE, Attention, is_different
from extract.effects.interventions import Call, Recorder, compare_losses, compute_log_probabilities, intervene, run_base
from extract.effects.policies import LargestKeys
from extract.effects.sparsity import SparseEdit, estimate_row_bytes
from extract.models.loading import MODEL_ERRORS
from storage.errors import UserError
from storage.zarr.layers import list_attending_layers

TRIED = 16
"""Tokens of the sequence on which resuming is tested."""


class LayerReachedError(Exception):
    """Ends a pass at the attention of a layer; raised by edits inside ``ResumableModel.run_until_attention``."""


@dataclass(frozen=True)
class PlainPass:
    """A plain forward pass over one sequence."""

    ids: Tensor
    """Token ids, (1, K)."""
    logits: Tensor
    """(K, V), in the model's type."""
    states: dict[int, Tensor]
    """Hidden states before each layer at which a pass can begin, (1, K, hidden size)."""


@dataclass
class _Trace:
    """Leaves attention unchanged, and records what happens in a pass, layer by layer."""

    states: dict[int, Tensor] = field(default_factory=dict)
    """The hidden states before each layer."""
    parts: dict[int, int | None] = field(default_factory=dict)
    """Number of parts of each layer's output; None if the output is the hidden states themselves."""
    outputs: dict[Module, Tensor] = field(default_factory=dict)
    """Outputs of the modules without submodules, if they are one tensor."""
    calls: Counter[Module] = field(default_factory=Counter)
    """Number of calls of each of these modules."""
    before: dict[int, set[Module]] = field(default_factory=dict)
    """The modules called before the attention of each layer."""

    def __call__(self, call: Call) -> Tensor:
        """The layer's own."""
        self.before[call.layer] = set(self.calls)
        return call.output()

    def list_called_once(self, layer: Module, number: int) -> list[Module]:
        """The parts of a layer that run once in a pass, before its attention, and return one tensor of one sequence."""
        before = [part for part in layer.modules() if part in self.before.get(number, ()) and self.calls[part] == 1]
        return [part for part in before if part in self.outputs and self.outputs[part].shape[0] == 1]

    def count_parts(self, layer: int, _: Module, __: Any, output: Any) -> None:
        """Record the number of parts of a layer's output; a hook."""
        self.parts[layer] = len(output) if isinstance(output, tuple) else None

    def note(self, part: Module, _: Any, output: Any) -> None:
        """Record the calls and the output of a module; a hook."""
        self.calls[part] += 1
        if isinstance(output, Tensor):
            self.outputs[part] = output


class ResumableModel:
    """A causal language model, in eval mode, whose forward passes over copies of one sequence can begin at its layers.

    It is tested on the first ``TRIED`` of ``ids``, (K,).
    """

    resumes: tuple[bool, ...]
    """Whether a pass can begin at each layer; the first layer needs no hidden states."""

    def __init__(self, model: PreTrainedModel, attention: Attention, ids: Tensor) -> None:
        self.model = model
        count = len(attention.layers)
        lists = [part for part in model.base_model.modules() if isinstance(part, ModuleList)]
        self._layers: Sequence[Module] = next((tuple(part) for part in lists if len(part) == count), ())
        trace, logits = self._trace_pass(attention, ids[None, :TRIED])
        self._parts = trace.parts
        self._early = {number: trace.list_called_once(layer, number) for number, layer in enumerate(self._layers)}
        self.resumes = (False,) * count
        passed = PlainPass(ids[None, :TRIED], logits[0], trace.states)
        self.resumes = tuple(self._can_resume(passed, layer, trace.outputs) for layer in range(count))

    def run_plain(self, ids: Tensor, layers: Iterable[int] = ()) -> PlainPass:
        """Run a plain pass over token ids (K,) and keep the hidden states for passes that begin at ``layers``.

        Memory: the logits, and K * hidden size numbers of the model's type for each of ``layers``.
        """
        states: dict[int, Tensor] = {}
        with _register_hooks(
            [(self._layers[layer], partial(_keep, states, layer), True) for layer in layers if self.resumes[layer]]
        ):
            logits = self._compute_logits(ids[None])
        return PlainPass(ids[None], logits[0], states)

    def run_until_attention(self, passed: PlainPass, layer: int) -> dict[Module, Tensor]:
        """Run one copy until the edit of a layer's attention raises ``LayerReachedError``, within ``intervene``.

        Returns outputs of the parts of the layer that run once, for ``run``: about K * hidden size numbers each.
        """
        trace = _Trace()
        parts = self._early[layer] if self.resumes[layer] else ()
        with _register_hooks([(part, trace.note, False) for part in parts]), suppress(LayerReachedError):
            self.run(passed, layer, 1)
        return trace.outputs

    def run(self, passed: PlainPass, layer: int, rows: int, early: Mapping[Module, Tensor] | None = None) -> Tensor:
        """Logits (rows, K, V) of ``rows`` copies of a sequence, in a pass that begins at a layer if possible.

        The parts of ``early``, the result of ``run_until_attention`` for the same layer, do not run again. ``KeyError``
        if the hidden states before the layer were not kept.
        """
        answers = {part: partial(_copy, output, rows) for part, output in (early or {}).items()}
        with ExitStack() as entered:
            if self.resumes[layer]:
                entered.enter_context(self._begin_at(layer, passed.states[layer]))
            entered.enter_context(_replace_forwards(answers))
            return self._compute_logits(passed.ids.expand(rows, -1))

    def _compute_logits(self, ids: Tensor) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self.model(input_ids=ids.to(self.model.device, torch.long), use_cache=False).logits
        return logits

    def _trace_pass(self, attention: Attention, ids: Tensor) -> tuple[_Trace, Tensor]:
        trace = _Trace()
        hooks: list[tuple[Module, Callable[..., Any], bool]] = []
        for number, layer in enumerate(self._layers):
            hooks += [(layer, partial(_keep, trace.states, number), True)]
            hooks += [(layer, partial(trace.count_parts, number), False)]
            hooks += [(part, trace.note, False) for part in layer.modules() if not any(part.children())]
        with intervene(self.model, attention, trace), _register_hooks(hooks):
            return trace, self._compute_logits(ids)

    def _can_resume(self, passed: PlainPass, layer: int, outputs: Mapping[Module, Tensor]) -> bool:
        """Whether a pass that begins at a layer, and copies whose early parts run once, reproduce the plain logits."""
        state = passed.states.get(layer)
        if layer == 0 or state is None or state.shape[:2] != passed.ids.shape:
            return False
        try:
            with self._begin_at(layer, state):
                logits = self._compute_logits(passed.ids)
                with _replace_forwards({part: partial(_copy, outputs[part], 2) for part in self._early[layer]}):
                    copies = self._compute_logits(passed.ids.expand(2, -1))
        except MODEL_ERRORS:
            return False
        expected = passed.logits[None]
        return torch.equal(logits, expected) and not is_different(
            copies, expected.expand_as(copies), TOLERANCE[logits.dtype]
        )

    @contextmanager
    def _begin_at(self, layer: int, state: Tensor) -> Iterator[None]:
        """Skip the layers before one inside the context, and give that layer hidden states (1, K, hidden size)."""
        answers = {part: partial(_pass_on, self._parts[number]) for number, part in enumerate(self._layers[:layer])}
        with _register_hooks([(self._layers[layer], partial(_give, state), True)]), _replace_forwards(answers):
            yield


@contextmanager
def _register_hooks(hooks: Iterable[tuple[Module, Callable[..., Any], bool]]) -> Iterator[None]:
    """Register hooks of modules inside the context, before they run (True) or after it (False)."""
    with ExitStack() as registered:
        for part, hook, before in hooks:
            kind = partial(part.register_forward_pre_hook, with_kwargs=True) if before else part.register_forward_hook
            registered.enter_context(kind(hook))
        yield


@contextmanager
def _replace_forwards(answers: Mapping[Module, Callable[..., Any]]) -> Iterator[None]:
    """Replace the forward methods of modules by functions inside the context."""
    before = {part: vars(part).get("forward") for part in answers}  # accelerate's, if it has set one
    for part, answer in answers.items():
        part.forward = answer
    try:
        yield
    finally:
        for part, own in before.items():
            if own is None:
                del part.forward
            else:
                part.forward = own


def _select_hidden(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _keep(states: dict[int, Tensor], layer: int, _: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Store the hidden states passed to a layer; a hook."""
    if isinstance(hidden := _select_hidden(args, kwargs), Tensor):
        states[layer] = hidden


def _give(
    state: Tensor, _: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace a layer's hidden states by ``state`` (1, K, hidden size), repeated for each sequence; a hook."""
    copies = state.repeat(len(_select_hidden(args, kwargs)), 1, 1)
    return ((copies, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": copies})


def _pass_on(parts: int | None, *args: Any, **kwargs: Any) -> Any:
    """Return the hidden states unchanged, in an output of ``parts`` parts; a forward method."""
    hidden = _select_hidden(args, kwargs)
    return hidden if parts is None else (hidden, *[None] * (parts - 1))


def _copy(output: Tensor, rows: int, *_: Any, **__: Any) -> Tensor:
    """Return ``rows`` copies of a module's output for one sequence; a forward method."""
    return output.repeat(rows, *[1] * (output.ndim - 1))


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
        output[:, :, head] = SparseEdit(policy)(call.select_head(head))[:, :, 0]
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

    def __call__(self, call: Call) -> Tensor:
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
    some of them, each as (layer, head); all if None. Under ``mean`` they are replaced by z of ``means``, by layer (H,
    Dv): see ``compute_mean_of_others``. ``ValueError`` if there are none.

    Memory beside the model's: logits and hidden states of the plain pass, K * (V + layers * hidden size) numbers of the
    model's type; K * V logarithms of probabilities in float32; and one pass of ``count_rows_per_pass`` rows, at most
    ``ROW_BYTES`` or the size of one row.
    """
    chosen = sorted(set(list_attending_layers(attention) if layers is None else layers))
    recorder = Recorder()
    with intervene(resumable.model, attention, recorder):
        passed = resumable.run_plain(ids, chosen)
    plain = compute_log_probabilities(passed.logits)
    plain_loss = float(compare_losses(passed.logits[None], plain, ids)[0])
    for layer in chosen:
        count = attention.layers[layer].heads
        edit = _Rows(layer, means[layer] if means and "mean" in kinds else None)
        wanted = [
            (kind, head)
            for kind, head in product(kinds, range(count))
            if (heads is None or (layer, head) in heads) and (kind != "sink" or recorder.sees_first[layer])
        ]
        loss, kl = np.full((2, len(kinds), count), np.nan)
        for rows, logits in _iterate_logits(resumable, attention, passed, edit, wanted):
            at = [kinds.index(kind) for kind, _ in rows], [head for _, head in rows]
            loss[at], kl[at] = compare_losses(logits, plain, ids)
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
    """Mean of z over positions and all sequences but one, by layer, (H, Dv), from ``compute_mean_outputs`` of all."""
    count = len(next(iter(means.values())))
    if count < 2:
        raise UserError(
            "A head is replaced by its mean over other sequences, but there is only one; set sequences to 2 or more"
        )
    return {layer: (of_all.sum(dim=0) - of_all[sequence]) / (count - 1) for layer, of_all in means.items()}
