"""The record of an asset: its parents, what decides its content, how it is made, and whether it is current.

There is one record per asset, with all of this; ``dagster_project.assets.catalogue`` lists the records. Dagster's
assets, ``run``, ``refresh``, the schedule, ``drop``, ``doctor``, the estimate of disk space and the documentation
derive from them.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from dagster_project.study.home import Home
from dagster_project.study.settings import Study, find_twin_name
from extract.settings import describe_changes
from storage.errors import NewerError, UserError, refuse_newer
from storage.files.locks import hold_lock
from storage.files.places import Place

if TYPE_CHECKING:
    from dagster_project.analysis.metrics import Metrics
    from dagster_project.analysis.sources import Sources
    from storage.zarr.sequences import SequenceStore

MISSING, UNREADABLE, OTHER = "missing", "cannot be read", "made from other"
"""Why an asset is stale, or how such a reason begins."""


@dataclass(frozen=True)
class Provenance:
    """What decides the content of an asset: two with equal documents have equal contents."""

    version: object
    """Version or digest of the code that makes it; None if an earlier version recorded none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the study, as JSON, by their dotted names."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What else it is made from, as JSON, by the name for readers: ``tensors``, ``metrics``, ``tables`` …"""
    lacking: str | None = None
    """What is still missing of an asset that is made in parts; None if it is complete."""


def compute_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a JSON document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def digest_code(*places: Traversable) -> str:
    """A version of code: a digest of source files, and of all files below folders but compiled ones."""
    digest = hashlib.sha256()
    for place in places:
        for name, content in sorted(_read_sources(place)):
            digest.update(f"{name}\0".encode() + content)
    return digest.hexdigest()[:12]


def _read_sources(place: Traversable) -> Iterator[tuple[str, bytes]]:
    """Names and contents of a file, or of all files below a folder except compiled ones."""
    if place.is_file():
        yield place.name, place.read_bytes()
    elif place.name != "__pycache__":
        for entry in place.iterdir():
            yield from ((f"{place.name}/{name}", content) for name, content in _read_sources(entry))


@dataclass(frozen=True)
class Check:
    """A check of an asset, as Dagster shows it."""

    name: str
    description: str
    blocking: bool = True
    """Whether a failure stops the assets that follow; if not, it is a warning."""


@dataclass(frozen=True)
class CheckResult:
    """The result of a check."""

    name: str
    passed: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None


class Markdown(str):
    """A text of metadata that is Markdown."""

    __slots__ = ()


@dataclass(frozen=True)
class AssetResult:
    """The result of making an asset."""

    metadata: Mapping[str, Any]
    """Numbers, texts, paths and ``Markdown`` for Dagster's records."""
    checks: tuple[CheckResult, ...] = ()
    message: str | None = None
    """What is logged of it, in one line without the name of the study; None if it has logged that itself."""


@dataclass(frozen=True)
class Work:
    """The study that an asset is made for, how existing stores are treated, and what is stored.

    Stores and databases are as they were when each was first needed; ``dataclasses.replace(work)`` looks again.
    """

    home: Home
    name: str
    """Name of the study."""
    study: Study
    assets: tuple["Asset", ...]
    """All assets of a study, in an order in which they can be made."""
    replace: bool = False
    """Whether an expensive store that cannot be continued is replaced; if not, it is refused."""
    force: bool = False
    """Whether the asset is rebuilt even if it is current."""
    is_locked: bool = False
    """Whether the caller holds the lock of the study."""

    @cached_property
    def sources(self) -> "Sources":
        """The complete stores; errors as ``dagster_project.analysis.sources.open_sources``."""
        from dagster_project.analysis.sources import open_sources

        return open_sources(self.home, self.name, self.study)

    @cached_property
    def tensors(self) -> "SequenceStore | None":
        """The tensor store; None if there is none that can be read."""
        from storage.zarr.arrays import TENSORS
        from storage.zarr.sequences import SequenceStore

        try:
            store = SequenceStore.open(self.home.tensors(self.name), TENSORS)
            store.find_missing()
        except NewerError:
            raise
        except UserError:
            return None
        return store

    @cached_property
    def metrics(self) -> "Metrics | None":
        """What is measured of the tensors with the study's settings, there or not; None without tensors."""
        from dagster_project.analysis.metrics import Metrics

        if self.tensors is None:
            return None
        return Metrics.of(self.home, self.name, self.tensors, self.study.analysis)

    @cached_property
    def landed(self) -> dict[str, Any] | None:
        """The provenance in the published database; None if there is none that can be read."""
        from storage.warehouse.connection import read_provenance

        return read_provenance(self.home.warehouse, self.name)

    @cached_property
    def landed_twin(self) -> dict[str, Any] | None:
        """The provenance in the database of the study's twin; None also if it has no twin."""
        from storage.warehouse.connection import read_provenance

        twin = find_twin_name(self.name, self.study)
        return None if twin is None else read_provenance(self.home.warehouse, twin)

    @property
    def twin(self) -> dict[str, Any] | None:
        """What claims are compared with: the name of the study's twin, and a digest of what its database was made from.

        The digest is None if the twin has not landed; None without a twin.
        """
        name = find_twin_name(self.name, self.study)
        made_from = None if self.landed_twin is None else compute_digest(self.landed_twin)
        return None if name is None else {"name": name, "made_from": made_from}

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock of the study's stores inside the context, unless the caller does; ``UserError`` if another
        process does.
        """
        if self.is_locked:
            return nullcontext()
        return hold_lock(self.home.lock(self.name), f"study '{self.name}'", wait=0)


@dataclass(frozen=True)
class Extent:
    """The size of a study whose tensors are not all extracted, or whose metrics are not all computed."""

    work: Work
    sizes: Mapping[str, int]
    """Sizes of the tensor store's axes."""
    missing: int
    """Sequences that are still to be extracted, by this process or others."""


@dataclass(frozen=True)
class Asset:
    """One asset of every study."""

    name: str
    about: str
    """What it is, in a paragraph."""
    parents: tuple[str, ...]
    """The names of the assets that it is made from."""
    kinds: tuple[str, ...]
    """The libraries and formats that it is made with, as Dagster shows them."""
    version: Callable[[], str]
    """Version or digest of the code that makes it."""
    make: Callable[[Work], AssetResult]
    """Makes it, or what is missing of it; raises ``UserError``."""
    compare: Callable[[Work], tuple[Provenance | str, Provenance | None]]
    """What it was made of, as it records, or the reason why that cannot be read; and what it would be made of now, with
    its parents as they are, or None if that is unknown without them."""
    places: Callable[[Home, str], tuple[Place, ...]]
    """Where the asset of a study is stored."""
    settings: tuple[str, ...] = ()
    """Dotted names of the settings that decide it, in addition to those that decide its parents."""
    reads: tuple[str, ...] = ()
    """The arrays of the tensor store it is made from that ``drop`` deletes."""
    tables: tuple[str, ...] = ()
    """The warehouse's tables whose rows it computes."""
    locate_parts: Callable[[Work], Mapping[str, Place]] = lambda _: {}
    """The Parquet file of each of these tables, made of what is there now."""
    space: Callable[[Extent], int] | None = None
    """Upper bound of the bytes that it still takes on its disk; None if that is negligible."""
    checks: Callable[[], tuple[Check, ...]] = tuple
    pool: str | None = None
    """The Dagster pool in which at most one is made at a time."""
    is_wanted: Callable[[Study], bool] = lambda _: True
    """Whether a study asks for it; if not, it is not made, whatever is stored, and its tables are empty."""

    def explain_staleness(self, work: Work) -> str | None:
        """Why it would have to be rebuilt if its parents were current, in words; None if it would not.

        ``UserError`` if a local model or corpus is missing or cannot be read, or an object store does not answer;
        ``NewerError`` if a newer version of the program made it.
        """
        if not self.is_wanted(work.study):
            return None
        recorded, expected = self.compare(work)
        if isinstance(recorded, str):
            return recorded
        refuse_newer(f"'{self.name}' of study '{work.name}'", recorded.version, self.version(), work.name)
        return (expected and _describe_change(recorded, expected)) or recorded.lacking


def _describe_change(was: Provenance, now: Provenance) -> str | None:
    """Describe how two documents differ; None if they do not."""
    if was.version != now.version:
        earlier = "an earlier version" if was.version is None else f"version {was.version}"
        return f"made by {earlier} of its code, now {now.version}"
    if changed := "; ".join(describe_changes(now.settings, was.settings)):
        return changed
    unlike = [name for name, value in now.inputs.items() if value != was.inputs.get(name)]
    return f"{OTHER} {' and '.join(unlike)}" if unlike else None


def wrap_place(place: Callable[[Home, str], Place]) -> Callable[[Home, str], tuple[Place, ...]]:
    """``Asset.places`` of an asset that is stored in one place."""
    return lambda home, name: (place(home, name),)
