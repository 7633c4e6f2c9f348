"""The data root: the folder that all files of all studies are stored in, and ``Home``, the paths in it."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal

from filelock import FileLock, Timeout

from storage.errors import UserError
from storage.files.locks import hold_lock
from storage.files.places import LocalPlace, Place
from storage.files.root import DEFAULT_HOME, HOME_VARIABLE, data_root, parse_place, warehouse_of
from storage.files.staging import UNFINISHED, explain_unwritable

if TYPE_CHECKING:
    from extract.settings import Shard

__all__ = ["DEFAULT_HOME", "HOME_VARIABLE", "METRICS_VARIABLE", "SHARD_PATIENCE", "TENSORS_VARIABLE", "Home", "is_held"]

TENSORS_VARIABLE = "ATTENTION_GEOMETRY_TENSORS"
"""Environment variable that names another location for tensor stores: a folder, or a URL of an object store."""

METRICS_VARIABLE = "ATTENTION_GEOMETRY_METRICS"
"""Environment variable that names another location for metrics, which no other data root uses."""

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
"""Names of studies and families: a name becomes file names and a partition key."""

SHARD_PATIENCE = 10.0
"""Seconds that a shard waits for another process that only checks whether the study is free."""


def is_valid_name(name: object) -> bool:
    """Whether something may be the name of a study or a family, of which paths are made."""
    return isinstance(name, str) and bool(NAME.fullmatch(name)) and not UNFINISHED.search(name)


@dataclass(frozen=True)
class Home:
    """The data root and the path of each file in it."""

    root: Path
    tensor_root: Place | None = None
    """Where tensor stores are, if not in the data root: they are by far the largest files."""
    metric_root: Place | None = None
    """Where metrics are, if not in the data root."""

    @classmethod
    def from_environment(cls) -> "Home":
        """The data root that ``ATTENTION_GEOMETRY_HOME`` names, or ``./data``.

        Tensor stores are in it, or in the location that ``ATTENTION_GEOMETRY_TENSORS`` names; metrics likewise with
        ``ATTENTION_GEOMETRY_METRICS``.

        ``UserError`` if the location of such stores is a URL that cannot be used.
        """
        elsewhere = (os.environ.get(variable) for variable in (TENSORS_VARIABLE, METRICS_VARIABLE))
        return cls(data_root(), *(parse_place(named) if named else None for named in elsewhere))

    @property
    def studies_file(self) -> Path:
        """Studies recorded by ``attention-geometry run --name``."""
        return self.root / "studies.yaml"

    @property
    def warehouse(self) -> Path:
        """The folder of the published databases, one per study."""
        return warehouse_of(self.root)

    @property
    def dagster(self) -> Path:
        """Dagster's own records: runs, events, schedules."""
        return self.root / "dagster"

    def locate_stores(self, part: Literal["tensors", "metrics"]) -> Place:
        """Where the tensor stores, or the metrics, of all studies are."""
        elsewhere = self.tensor_root if part == "tensors" else self.metric_root
        return elsewhere or LocalPlace(self.root / part)

    def tensors(self, study: str) -> Place:
        """The tensor store of a study."""
        return self.locate_stores("tensors").join(f"{study}.zarr")

    def metrics(self, study: str) -> Place:
        """The folder of what is measured of a study, a part for each layer."""
        return self.locate_stores("metrics").join(f"{study}.parts")

    def parts(self, study: str) -> Path:
        """The folder of the parts of a study's tables, which are landed in the warehouse."""
        return self.root / "parts" / study

    @property
    def index(self) -> Path:
        """The HTML page that lists every study."""
        return self.root / "index.html"

    @property
    def reports(self) -> Path:
        """The folder of the HTML reports, one per study."""
        return self.root / "reports"

    def report(self, study: str) -> Path:
        """The HTML report of a study."""
        return self.reports / f"{study}.html"

    @property
    def families(self) -> Path:
        """The folder of the HTML pages of families, one per family."""
        return self.root / "families"

    @property
    def comparisons(self) -> Path:
        """The folder of the HTML pages that compare several studies."""
        return self.root / "comparisons"

    def comparison(self, studies: Sequence[str]) -> Path:
        """The HTML page that compares these studies in this order; no name of a study has a plus sign."""
        return self.comparisons / f"{'+'.join(studies)}.html"

    def lock(self, study: str) -> Path:
        """The lock that a process holds while it writes the stores of a study."""
        return self._locks / f"{study}.lock"

    @property
    def _locks(self) -> Path:
        """The folder of locks: next to the tensors if these are in a local folder, which other data roots may share."""
        return (self.tensor_root.path if isinstance(self.tensor_root, LocalPlace) else self.root) / "locks"

    @contextmanager
    def claim(self, study: str, shard: "Shard | None" = None) -> Iterator[None]:
        """Hold a study exclusively inside the context; or one shard of it, alongside others of the same division.

        ``UserError`` if another process is working on the study or shard, or on a shard of another division.
        """
        self._create_roots()
        mine, what = self.lock(study), f"study '{study}'"
        if shard is not None:
            mine = self._locks / "shards" / study / f"{shard.index}-of-{shard.count}.lock"
            what = f"shard {shard} of {what}"
        with hold_lock(mine, what, wait=0):
            # each claims its own lock first and then checks the others, so one of two is refused
            for rival in self._list_rival_locks(study, shard):
                with hold_lock(rival, f"study '{study}'", wait=SHARD_PATIENCE):
                    pass
            yield

    def _list_rival_locks(self, study: str, shard: "Shard | None") -> list[Path]:
        """The locks that exclude work on a study, or on a shard of it."""
        shards = sorted((self._locks / "shards" / study).glob("*.lock"))
        if shard is None:
            return shards
        return [self.lock(study), *(lock for lock in shards if not lock.stem.endswith(f"-of-{shard.count}"))]

    @contextmanager
    def reserve(self, study: str) -> Iterator[None]:
        """Reserve a study for one process from the first step of a run to its last; each step claims it in between.

        ``UserError`` if another process runs the study, or removes files of it.
        """
        self._create_roots()
        with hold_lock(self._locks / "studies" / f"{study}.lock", f"study '{study}'", wait=0):
            yield

    def is_claimed(self, study: str) -> bool:
        """Whether a process is running a study, or working on it or on a shard of it."""
        own = f"{study}.lock"
        locks = [self._locks / "studies" / own, self._locks / own, *(self._locks / "shards" / study).glob("*.lock")]
        return any(is_held(lock) for lock in locks)

    def prepare(self) -> None:
        """Create the data root; ``UserError`` if it cannot be written."""
        self._create_roots()
        with _explain_unwritable(self.root, f"--home DIR or {HOME_VARIABLE}"), TemporaryFile(dir=self.root):
            pass

    def _create_roots(self) -> None:
        """Create the data root and the folders of stores elsewhere if they do not exist, for their owner only."""
        for place, variable in (
            (LocalPlace(self.root), f"--home DIR or {HOME_VARIABLE}"),
            (self.tensor_root, TENSORS_VARIABLE),
            (self.metric_root, METRICS_VARIABLE),
        ):
            if isinstance(place, LocalPlace):
                with _explain_unwritable(place.path, variable):
                    place.path.parent.mkdir(parents=True, exist_ok=True)
                    place.path.mkdir(mode=0o700, exist_ok=True)

    @contextmanager
    def set_stores_aside(self, study: str, *, claimed: bool = False) -> Iterator[None]:
        """Set the stores of a study aside inside the context; what is published of it stays until it is replaced.

        They are renamed, so that each is complete or absent whenever the process is killed. If the body fails before
        there are new tensors, they are restored; after that they stay next to the new ones until
        ``discard_replaced``, which is called once the new ones are complete. Stores in an object store, which cannot
        rename, are deleted on entry. ``claimed``: the caller has claimed the study, and not the body in its steps.
        """
        moved: dict[str, Path] = {}
        hold = nullcontext if claimed else partial(self.claim, study)
        try:
            with hold():
                self.refuse_links(study)
                for store in sorted(self._list_stores(study), key=lambda store: store.is_remote):  # restorable first
                    if (aside := store.set_aside()) is not None:
                        moved[str(store)] = aside
            yield
        except BaseException:
            with suppress(UserError), hold():  # suppressed, because the user needs to see why the body failed
                for origin, aside in moved.items() if not self.tensors(study).exists() else ():
                    aside.rename(origin)
            raise

    def discard_replaced(self, study: str) -> None:
        """Remove the replaced stores of a study; call it once its new tensors are complete."""
        for store in self._list_stores(study):
            store.discard_replaced()

    def _list_stores(self, study: str) -> tuple[Place, ...]:
        return (self.tensors(study), self.metrics(study), LocalPlace(self.parts(study)))

    def refuse_links(self, study: str) -> None:
        """Refuse (``UserError``) to replace or delete the stores of a study if one is a link to another place."""
        for store in self._list_stores(study):
            store.refuse_link()


def _explain_unwritable(root: Path, setting: str) -> AbstractContextManager[None]:
    return explain_unwritable(f"The data root {root}", f"choose another with {setting}")


def is_held(lock: Path) -> bool:
    """Whether a process holds a lock file; one that cannot be opened counts as held."""
    if not lock.exists():
        return False
    try:
        with FileLock(lock, timeout=0):
            return False
    except (Timeout, OSError):
        return True
