"""The state of each study of a data root, from not run to reported."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError
from storage.files.places import Place

if TYPE_CHECKING:
    from storage.zarr.arrays import ArraySpec

NOT_RUN = "not run"


def describe_states(home: Home, studies: Mapping[str, Study]) -> dict[str, str]:
    """Describe the state of each study in a few words."""
    return {name: _mark_gpu_need(_describe_state(home, name), study) for name, study in studies.items()}


def _mark_gpu_need(state: str, study: Study) -> str:
    """A state, with a note if the study has not been run and needs a GPU."""
    return f"{state}; needs a GPU" if state == NOT_RUN and study.needs_gpu else state


def _describe_state(home: Home, name: str) -> str:
    from storage.warehouse.connection import locate_database
    from storage.zarr.arrays import SELECTION, TENSORS

    if locate_database(home.warehouse, name).exists():
        return "reported" if home.report(name).exists() else "landed"
    if home.metrics(name).exists():
        return f"measured: {_describe_progress(home.metrics(name), SELECTION)}"
    try:
        extracted = home.tensors(name).exists()
    except UserError:  # an object store that does not answer
        return "unknown: its tensors cannot be reached; see doctor"
    return f"extracted: {_describe_progress(home.tensors(name), TENSORS)}" if extracted else NOT_RUN


def _describe_progress(path: Place, specs: "Sequence[ArraySpec]") -> str:
    from storage.zarr.sequences import SequenceStore

    try:
        store = SequenceStore.open(path, specs)
        total = store.sizes["sequence"]
        return f"{total - len(store.find_missing())} of {total} sequences"
    except Exception:  # noqa: BLE001 (the other studies are still listed)
        return "cannot be read; see doctor"
