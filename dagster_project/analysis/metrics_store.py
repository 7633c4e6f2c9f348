"""The metrics store of a study: what it was made of, and whether it can be used or continued.

What does not belong here: the computation (``dagster_project.analysis.measurement``) and the asset
(``dagster_project.assets.metrics``).
"""

import hashlib
import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from dagster_project.analysis.measurement import compute_metrics_sizes
from dagster_project.study.home import Home
from dagster_project.study.settings import AnalysisSettings
from storage.errors import NewerError, UserError, refuse_newer
from storage.files.places import Place
from storage.zarr.arrays import SELECTION
from storage.zarr.sequences import SequenceStore

METRICS_VERSION = 10
"""Version of the numbers in a metrics store; raised when their computation changes, so that stores are rebuilt."""

READ = ("attention", "values")
"""The arrays of the tensor store that metrics are computed from and that may have been dropped."""


def open_metrics(home: Home, name: str) -> SequenceStore:
    """The metrics store of a study.

    Raises
    ------
    UserError
        If there is none, or it is not one of this version; metrics are derived, so running the study rebuilds them.
    """
    path = home.metrics(name)
    msg = f"The metrics {path} are damaged or of an earlier version; run: attention-geometry run {name}"
    try:
        store = SequenceStore.open(path, SELECTION)
    except UserError as error:
        raise UserError(msg if path.exists() else str(error)) from error
    if store.provenance.get("metrics_version") != METRICS_VERSION:
        raise UserError(msg)
    return store


def build_metrics_provenance(name: str, tensors: SequenceStore, analysis: AnalysisSettings) -> dict[str, Any]:
    """The provenance of the metrics of these tensors and settings, except the versions of libraries and the device."""
    return {
        "study": name,
        "metrics_version": METRICS_VERSION,
        "analysis": analysis.select_measured(),
        "tensors": tensors.provenance,
    }


@dataclass(frozen=True)
class MetricsInputs:
    """What a metrics store is made of, and the device that computes it."""

    study: str
    tensors: SequenceStore
    analysis: AnalysisSettings
    device: str | None

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes of the store."""
        return compute_metrics_sizes(self.tensors, self.analysis)

    @property
    def provenance(self) -> dict[str, Any]:
        """What it is made of, except the versions of libraries and the device."""
        return build_metrics_provenance(self.study, self.tensors, self.analysis)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the libraries that compute it, and the device."""
        libraries = {library: version(library) for library in ("dask", "numba", "numpy", "torch")}
        return libraries | {"device": self.device or "cpu"}


def prepare_metrics_store(path: Place, made_of: MetricsInputs, *, force: bool = False) -> SequenceStore:
    """The metrics store of these tensors and settings; one of others, or of an older version, is removed.

    With ``force`` any existing store is removed. Nothing is removed if the tensors have been dropped, since the metrics
    could not be computed again.
    """
    if force or find_usable_store(path, made_of) is None:
        for name in READ:
            made_of.tensors.array(name)
        path.remove()
    provenance = made_of.provenance | {"versions": made_of.versions}
    return SequenceStore.resume(path, SELECTION, made_of.sizes, provenance, made_of.tensors.layers)


def find_usable_store(path: Place, made_of: MetricsInputs) -> SequenceStore | None:
    """The metrics store at ``path`` if it is of these tensors and settings, complete or to be continued; else None.

    Raises
    ------
    UserError
        If it can be continued only on another device; or if it is in an object store and cannot be opened, whether it
        is damaged or temporarily out of reach: there, only a store known to be of other inputs is rebuilt.
    """
    if not path.exists():
        return None
    try:
        recorded = SequenceStore.open(path, ())  # whatever arrays it has: an earlier version may have had others
        refuse_newer(f"The store {path}", recorded.provenance.get("metrics_version"), METRICS_VERSION, made_of.study)
        if not _is_of(recorded, made_of):
            return None
        store = SequenceStore.open(path, SELECTION)
        missing = store.find_missing()
    except NewerError:
        raise
    except UserError as error:
        if path.is_remote:
            msg = (
                f"The metrics {path} cannot be opened ({error}); "
                "if the object store works, delete them and run again, which computes them again"
            )
            raise UserError(msg) from error
        return None
    versions = store.provenance["versions"]
    if missing and versions["device"] != made_of.versions["device"]:
        msg = (
            f"The metrics {path} were started on the device '{versions['device']}' and would be continued on "
            f"'{made_of.versions['device']}'; run again on the former, or delete them to start again"
        )
        raise UserError(msg)
    return None if missing and versions != made_of.versions else store


def _is_of(store: SequenceStore, made_of: MetricsInputs) -> bool:
    """Whether a store is of these tensors and settings, whatever the versions of libraries."""
    recorded = {part: value for part, value in store.provenance.items() if part != "versions"}
    return (recorded, store.sizes, store.layers) == (made_of.provenance, made_of.sizes, made_of.tensors.layers)


def compute_provenance_digest(store: SequenceStore) -> str:
    """SHA-256 of the provenance of a store."""
    return hashlib.sha256(json.dumps(store.provenance, sort_keys=True).encode()).hexdigest()
