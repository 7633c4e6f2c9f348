"""The attention implementations of a model and its parts: another one in use for a time, by one thread at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

_locks: "WeakKeyDictionary[nn.Module, RLock]" = WeakKeyDictionary()
_changing = Lock()
"""Held while locks are made, and while the implementations and what is known of them differ."""

_own: dict[int, str | None] = {}
"""Own implementations of the configurations that have another one now, by the id of the configuration."""


def lock_model(model: PreTrainedModel) -> "RLock":
    """The lock of a model: whoever changes how it computes holds it, and may take it again."""
    with _changing:
        return _locks.setdefault(model, RLock())


@contextmanager
def restore_attention(model: PreTrainedModel) -> Iterator[None]:
    """Restore the attention implementations of the model and all its parts at the end, however the context is left.

    Other threads wait for the context of the same model to end.
    """
    with lock_model(model):
        before = [(config, config._attn_implementation) for config in _list_configs(model)]
        with _changing:
            mine = {id(config): own for config, own in before if id(config) not in _own}
            _own.update(mine)
        try:
            yield
        finally:
            with _changing:
                for config, own in before:  # one passes its implementation on to its parts, which follow it
                    config._attn_implementation = own
                for key in mine:
                    del _own[key]


def find_own_attention(config: Any) -> Any:
    """The implementation that a configuration has outside ``restore_attention``."""
    with _changing:
        return _own.get(id(config), config._attn_implementation)


def _list_configs(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """The configurations of the model and its parts, each once, before those of its own parts."""
    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    configs: dict[int, PreTrainedConfig] = {}
    while waiting:
        config = waiting.pop(0)
        configs.setdefault(id(config), config)
        parts = (getattr(config, name, None) for name in config.sub_configs)
        waiting += [part for part in parts if part is not None and id(part) not in configs]
    return list(configs.values())
