"""What tensors take while a computation runs, counted as they are made and freed."""

import weakref
from collections.abc import Callable

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Held(TorchDispatchMode):
    """Counts the bytes of all tensors that operations make and that are still held, and the most there ever were.

    Storage is counted once however many tensors share it. What kernels take inside of themselves is not seen.
    """

    most = 0
    """Most bytes held at a time."""
    largest = 0
    """Bytes of the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, list[int]] = {}

    def __torch_dispatch__(self, func: Callable[..., object], types: object, args: tuple = (), kwargs=None) -> object:
        output = func(*args, **(kwargs or {}))
        for tensor in output if isinstance(output, tuple | list) else (output,):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return output

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._held.setdefault(key, [0, storage.nbytes()])[0] += 1
        weakref.finalize(tensor, self._release, key)
        self.largest = max(self.largest, storage.nbytes())
        self.most = max(self.most, sum(size for _, size in self._held.values()))

    def _release(self, key: int) -> None:
        self._held[key][0] -= 1
        if not self._held[key][0]:
            del self._held[key]
