"""The attention implementations of a model and its parts, which are restored after another one was in use."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedConfig, PreTrainedModel


@contextmanager
def restore_attention(model: PreTrainedModel) -> Iterator[None]:
    """Restore the attention implementations of the model and all its parts at the end, however the context is left."""
    before = [(config, config._attn_implementation) for config in _list_configs(model)]
    try:
        yield
    finally:
        for config, own in before:  # a configuration passes its implementation on to its parts, which follow it
            config._attn_implementation = own


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
