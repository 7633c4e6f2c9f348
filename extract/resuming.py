"""Forward passes over copies of one sequence that begin at a layer, from the hidden states of a plain pass before it.

Holds ``Resumable``, a model that can do so. What does not belong here: what is changed in such a pass
(``extract.interventions``).

A pass that begins at layer l calls the whole model: the layers before l return what they are given, and layer l is
given the stored hidden states. So masks, position embeddings, final norm and logits are the model's own, whatever its
architecture. At which layers this gives what the plain pass gives, to the last bit, is found out beforehand; where it
does not (layers that use keys and values of earlier layers), and in models whose layers are not found, a pass begins at
the first layer.

Copies of one sequence are alike until something is changed in one of them, which is after the attention of layer l. So
the parts of the layer that come before (its first norm, the projections to queries, keys and values) run once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from transformers import PreTrainedModel

from extract.capture import TOLERANCE, Attention, differ
from extract.interventions import Call, intervening
from extract.two_pass import MODEL_ERRORS

TRIED = 16
"""Tokens of the sequence on which resuming is tried."""


class Reached(Exception):  # noqa: N818 - nothing is wrong
    """Ends a pass at the attention of a layer; for edits to raise, within ``Resumable.until_attention``."""


@dataclass(frozen=True)
class Passed:
    """A plain forward pass over one sequence."""

    ids: Tensor
    """Token ids, (1, K)."""
    logits: Tensor
    """(K, V), in the model's type."""
    states: dict[int, Tensor]
    """By layer at which a pass can begin, the hidden states before it, (1, K, hidden size)."""


@dataclass
class _Trace:
    """Leaves attention as it is, and tells what happens in a pass, layer by layer."""

    states: dict[int, Tensor] = field(default_factory=dict)
    """The hidden states before each layer."""
    parts: dict[int, int | None] = field(default_factory=dict)
    """How many parts the output of each layer has; None: it is the hidden states themselves."""
    outputs: dict[Module, Tensor] = field(default_factory=dict)
    """What the modules without modules of their own put out, as far as that is one tensor."""
    calls: Counter[Module] = field(default_factory=Counter)
    """How often each of them was called."""
    before: dict[int, set[Module]] = field(default_factory=dict)
    """Those called before the attention of each layer."""

    def output(self, call: Call) -> Tensor:
        """The layer's own."""
        self.before[call.layer] = set(self.calls)
        return call.output()


class Resumable:
    """A causal language model whose forward passes over copies of one sequence can begin at its layers.

    Parameters
    ----------
    model, attention
        The model, in eval mode, and what ``extract.capture.probe`` said of it.
    ids
        Token ids of a sequence, (K,), the first ``TRIED`` of which it is tried on.

    Raises
    ------
    UserError
        If the model is read in two passes, so that nothing could be changed in its attention.
    """

    resumes: tuple[bool, ...]
    """Whether a pass can begin at each layer; the first layer needs no hidden states."""

    def __init__(self, model: PreTrainedModel, attention: Attention, ids: Tensor) -> None:
        self.model = model
        self._layers = _layers(model, len(attention.layers))
        trace, logits = self._traced(attention, ids[None, :TRIED])
        self._parts = trace.parts
        self._early = {layer: _called_once(part, layer, trace) for layer, part in enumerate(self._layers)}
        self.resumes = (False,) * len(attention.layers)
        passed = Passed(ids[None, :TRIED], logits[0], trace.states)
        self.resumes = tuple(self._equals(passed, layer, trace.outputs) for layer in range(len(attention.layers)))

    def plain(self, ids: Tensor, layers: Iterable[int] = ()) -> Passed:
        """A plain pass over token ids (K,), which keeps what passes that begin at some layers need.

        Memory: the logits, and K * hidden size numbers of the model's type for each of ``layers``.
        """
        states: dict[int, Tensor] = {}
        with _hooked([(self._layers[layer], _keep(states, layer), True) for layer in layers if self.resumes[layer]]):
            logits = self._logits(ids[None])
        return Passed(ids[None], logits[0], states)

    def until_attention(self, passed: Passed, layer: int) -> dict[Module, Tensor]:
        """Run one copy until the edit of a layer's attention raises ``Reached``, within ``intervening``.

        Returns
        -------
        dict
            What the parts of the layer that run once put out, for ``run``: some K * hidden size numbers each.
        """
        trace = _Trace()
        parts = self._early[layer] if self.resumes[layer] else ()
        with _hooked([(part, _note(trace), False) for part in parts]), suppress(Reached):
            self.run(passed, layer, 1)
        return trace.outputs

    def run(self, passed: Passed, layer: int, rows: int, early: Mapping[Module, Tensor] | None = None) -> Tensor:
        """Logits (rows, K, V) of so many copies of a sequence, in a pass that begins at a layer if it can.

        Parameters
        ----------
        early
            What ``until_attention`` found of the same layer, whose parts then do not run again.

        Raises
        ------
        KeyError
            If the hidden states before the layer were not kept.
        """
        answers = {part: _copies(output, rows) for part, output in (early or {}).items()}
        with ExitStack() as entered:
            if self.resumes[layer]:
                entered.enter_context(self._begun_at(layer, passed.states[layer]))
            entered.enter_context(_answering(answers))
            return self._logits(passed.ids.expand(rows, -1))

    def _logits(self, ids: Tensor) -> Tensor:
        """Logits (B, K, V) of a forward pass."""
        with torch.inference_mode():
            logits: Tensor = self.model(input_ids=ids.to(self.model.device, torch.long), use_cache=False).logits
        return logits

    def _traced(self, attention: Attention, ids: Tensor) -> tuple[_Trace, Tensor]:
        """What happens in a plain pass, and its logits."""
        trace = _Trace()
        hooks: list[tuple[Module, Callable[..., Any], bool]] = []
        for number, layer in enumerate(self._layers):
            hooks += [(layer, _keep(trace.states, number), True), (layer, _count_parts(trace.parts, number), False)]
            hooks += [(part, _note(trace), False) for part in layer.modules() if not any(part.children())]
        with intervening(self.model, attention, trace), _hooked(hooks):
            return trace, self._logits(ids)

    def _equals(self, passed: Passed, layer: int, outputs: Mapping[Module, Tensor]) -> bool:
        """Whether a pass that begins at a layer, and copies in it whose early parts run once, give the logits."""
        state = passed.states.get(layer)
        if layer == 0 or state is None or state.shape[:2] != passed.ids.shape:
            return False
        try:
            with self._begun_at(layer, state):
                found = self._logits(passed.ids)
                with _answering({part: _copies(outputs[part], 2) for part in self._early[layer]}):
                    copies = self._logits(passed.ids.expand(2, -1))
        except MODEL_ERRORS:
            return False
        expected = passed.logits[None]
        return torch.equal(found, expected) and not differ(copies, expected.expand_as(copies), TOLERANCE[found.dtype])

    @contextmanager
    def _begun_at(self, layer: int, state: Tensor) -> Iterator[None]:
        """Within it the layers before one do nothing, and it is given hidden states (1, K, hidden size)."""
        answers = {part: _identity(self._parts[number]) for number, part in enumerate(self._layers[:layer])}
        with _hooked([(self._layers[layer], _give(state), True)]), _answering(answers):
            yield


def _layers(model: PreTrainedModel, count: int) -> Sequence[Module]:
    """The layers of a model, in order; none if they are not found."""
    lists = [part for part in model.base_model.modules() if isinstance(part, ModuleList)]
    return next((tuple(part) for part in lists if len(part) == count), ())


def _called_once(layer: Module, number: int, trace: _Trace) -> list[Module]:
    """The parts of a layer that run once in a pass, before its attention, and put out one tensor of one sequence."""
    before = trace.before.get(number, set())
    once = [part for part in layer.modules() if part in before and trace.calls[part] == 1 and part in trace.outputs]
    return [part for part in once if trace.outputs[part].shape[0] == 1]


@contextmanager
def _hooked(hooks: Iterable[tuple[Module, Callable[..., Any], bool]]) -> Iterator[None]:
    """Within it modules have hooks, before they run (True) or after it (False)."""
    handles = [
        part.register_forward_pre_hook(hook, with_kwargs=True) if before else part.register_forward_hook(hook)
        for part, hook, before in hooks
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _answering(answers: Mapping[Module, Callable[..., Any]]) -> Iterator[None]:
    """Within it functions answer for modules, which do not run."""
    before = {part: vars(part).get("forward") for part in answers}  # accelerate's, where it has one
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


def _hidden(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The hidden states among what a layer is given."""
    return args[0] if args else kwargs.get("hidden_states")


def _keep(states: dict[int, Tensor], layer: int) -> Callable[..., None]:
    """A hook that keeps the hidden states that a layer is given."""

    def keep(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if isinstance(hidden := _hidden(args, kwargs), Tensor):
            states[layer] = hidden

    return keep


def _give(state: Tensor) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    """A hook that gives a layer other hidden states (1, K, hidden size), once for each sequence."""

    def give(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        copies = state.repeat(len(_hidden(args, kwargs)), 1, 1)
        return ((copies, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": copies})

    return give


def _count_parts(parts: dict[int, int | None], layer: int) -> Callable[..., None]:
    """A hook that notes how many parts the output of a layer has."""

    def note(_: Module, __: Any, output: Any) -> None:
        parts[layer] = len(output) if isinstance(output, tuple) else None

    return note


def _note(trace: _Trace) -> Callable[..., None]:
    """A hook that notes what a module puts out."""

    def note(part: Module, _: Any, output: Any) -> None:
        trace.calls[part] += 1
        if isinstance(output, Tensor):
            trace.outputs[part] = output

    return note


def _identity(parts: int | None) -> Callable[..., Any]:
    """Answers with the hidden states that are given, in an output of so many parts."""

    def answer(*args: Any, **kwargs: Any) -> Any:
        hidden = _hidden(args, kwargs)
        return hidden if parts is None else (hidden, *[None] * (parts - 1))

    return answer


def _copies(output: Tensor, rows: int) -> Callable[..., Tensor]:
    """Answers with copies of what a module put out for one sequence."""

    def answer(*_: Any, **__: Any) -> Tensor:
        return output.repeat(rows, *[1] * (output.ndim - 1))

    return answer
