"""Whether the packages of the distribution are its own.

Seven of them lie at the top level under names that others use too: a folder ``storage`` beside a notebook hides ours,
and another distribution's ``geometry`` overwrites its files. Imports only the standard library.
"""

import base64
import hashlib
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

NAME = "attention-geometry"
"""Name of the distribution."""

ROOT = Path(__file__).resolve().parents[1]
"""The folder of all its packages: a checkout, or ``site-packages``."""

PACKAGES = ("attention_geometry", "dagster_project", "extract", "geometry", "reports", "sql", "storage")
"""The packages of the distribution."""


def check_packages() -> None:
    """Refuse to go on if a package that would be imported is not our own.

    Raises
    ------
    ImportError
        If so; it names the file that stands in the way.
    """
    for package in PACKAGES:
        file = _locate(package)
        if file is None or file.parent.parent != ROOT:
            ours = ROOT / package
            why = "there is no such package" if file is None else f"{file} stands in the way of {ours}"
            msg = f"The package '{package}' is not the one of {NAME}: {why}; rename it, or start Python elsewhere"
            raise ImportError(msg, name=package, path=None if file is None else str(file))
    for name in find_overwritten(f"{package}/__init__.py" for package in PACKAGES):
        package = name.partition("/")[0]
        others = sorted({*packages_distributions().get(package, ())} - {NAME})  # that say they have installed it
        by = f" by {' and '.join(others)}" if others else ""
        msg = f"{ROOT / name} has been overwritten{by}; install {NAME} in an environment of its own"
        raise ImportError(msg, name=package, path=str(ROOT / name))


def _locate(package: str) -> Path | None:
    """The file of a package that has been imported, or would be; None if there is none."""
    if (known := sys.modules.get(package)) is not None:
        file = getattr(known, "__file__", None)
    else:
        spec = find_spec(package)
        file = None if spec is None else spec.origin
    return None if file is None else Path(file).resolve()


def find_overwritten(files: Iterable[str] | None = None) -> Iterator[str]:
    """The installed files, of some or of all, that have other bytes than those that were installed, or are gone.

    Of an editable installation none is known: its files lie in the checkout.
    """
    chosen = None if files is None else {*files}
    try:
        installed = distribution(NAME).files or ()
    except PackageNotFoundError:  # a checkout that is only on the path
        return
    for file in installed:
        name, place = file.as_posix(), Path(str(file.locate())).resolve()
        if file.hash is None or name.partition("/")[0] not in PACKAGES or (chosen is not None and name not in chosen):
            continue
        if place != ROOT / name:
            continue
        digest = hashlib.new(file.hash.mode, place.read_bytes() if place.is_file() else b"").digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            yield name
