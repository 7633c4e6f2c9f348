"""Reading of damaged GGUF files, in a process with little memory: ``python -m tests.extract.gguf_damage DIR COUNT``."""

import random
import resource
import signal
import sys
from pathlib import Path

from tests.extract.gguf_files import outcome

ROOM = 4 * 2**30
"""Bytes of address space; PyTorch and transformers take most of them."""

SECONDS = 20
"""Most seconds that one file may take."""


def damage(whole: bytes, end: int, generator: random.Random) -> bytes:
    """A copy with one to four faults, of which most are before ``end``."""
    spoilt = bytearray(whole)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        at = generator.randrange(end if generator.random() < 0.9 else len(spoilt))
        kind = generator.randrange(6)
        if kind == 0:
            spoilt[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            spoilt[at : at + 8] = generator.randbytes(8)
        elif kind == 2:
            spoilt[at : at + 8] = generator.choice((2**60, 2**31, 2**16, 0)).to_bytes(8, "little")
        elif kind == 3:
            del spoilt[at : at + generator.choice((1, 4, 8, 100))]
        elif kind == 4:
            spoilt[at:at] = generator.randbytes(generator.choice((1, 4, 8)))
        else:
            other = generator.randrange(end)
            spoilt[at : at + 12] = spoilt[other : other + 12]
    return bytes(spoilt)


def main(folder: Path, count: int) -> None:
    """Read ``count`` damaged copies of a file, and print how many were read and how many refused."""
    whole = (folder / "tiny.gguf").read_bytes()
    end = whole.index(b"blk.0.attn_norm.weight") + 600
    path, generator, found = folder / "damaged.gguf", random.Random(7), []
    outcome(folder / "tiny.gguf")  # all libraries are loaded
    resource.setrlimit(resource.RLIMIT_AS, (ROOM + measure_room(), ROOM + measure_room()))
    for number in range(count):
        path.write_bytes(damage(whole, end, generator))
        signal.alarm(SECONDS)
        try:
            found.append(outcome(path) is None)
        except BaseException:
            print(f"file {number}:", file=sys.stderr)  # noqa: T201
            raise
        signal.alarm(0)
    print(sum(found), len(found) - sum(found))  # noqa: T201


def measure_room() -> int:
    """Bytes of address space that this process has already taken."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
