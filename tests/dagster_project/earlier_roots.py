"""A data root as an earlier version wrote it, kept as an archive.

``python -m tests.dagster_project.earlier_roots DATA_ROOT`` packs another: of a data root in which that version has run
``STUDY`` it keeps all but Dagster's records, locks and the shell's script, and of the page the part that says what it
was made from.
"""

import sys
import tarfile
from pathlib import Path

import yaml

from dagster_project.assets.report import HEAD

ARCHIVE = Path(__file__).with_name("earlier_root.tar.xz")

NAME = "earlier"

STUDY = {
    "model": "synthetic",
    "context_length": 16,
    "sequences": 3,
    "queries": [9, 15],
    "synthetic": {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8},
    "analysis": {
        "kappas": [0.5, 2],
        "monte_carlo": {
            "head_dim": [4],
            "n_keys": [8],
            "n": [2, 4],
            "beta": [1.0],
            "lambda_sink": [0.1, 1.0],
            "rho_0": [0.0],
            "draws": 4,
        },
    },
}
"""Small, and yet every table but those of one query or of a trained model has rows."""


def unpack(folder: Path) -> Path:
    """The data root in a new folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def pack(root: Path) -> None:
    """Make the archive of a data root."""
    assert yaml.safe_load((root / "studies.yaml").read_text()) == {"studies": {NAME: STUDY}}
    page = root / "reports" / f"{NAME}.html"
    page.write_bytes(page.read_bytes()[:HEAD])
    kept = ("studies.yaml", "index.html", "tensors", "metrics", "summaries", "warehouse", "reports")

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if entry.name.endswith((".lock", "open.sql")) else entry

    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for name in kept:
            archive.add(root / name, name, filter=chosen)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
