"""A process that writes some sequences of a store: ``python -m tests.storage.writer PLACE FIRST STEP GO``.

It says ``ready``, and as soon as the file GO is there it makes the store if there is none, and writes every STEP-th
sequence from FIRST.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from storage.files.root import parse_place
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore

SIZES = {"sequence": 12, "query": 2, "layer": 3, "head": 4, "kv_head": 2, "key": 16, "head_dim": 8}


def arrays(sequence: int) -> dict[str, np.ndarray]:
    """What sequence number ``sequence`` holds."""
    rng = np.random.default_rng(sequence)
    drawn = {spec.name: 9 * rng.random(spec.shape(SIZES)[1:]) for spec in TENSORS if spec.name != "finished"}
    return {spec.name: drawn[spec.name].astype(spec.dtype) for spec in TENSORS if spec.name in drawn}


def main(where: str, first: str, step: str, go: str) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not Path(go).exists():
        time.sleep(0.005)
    store = SequenceStore.resume(parse_place(where), TENSORS, SIZES, {"study": "shared"}, alone=False)
    for sequence in range(int(first), SIZES["sequence"], int(step)):
        store.write(sequence, arrays(sequence))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # as the product's commands end: threads of the object store's client may abort in finalisation
