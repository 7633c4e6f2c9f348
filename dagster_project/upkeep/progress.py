"""The state of each study of a data root, from not run to reported."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from storage.errors import UserError


def merge_members(rows: Iterable[Mapping[str, Any]], families: Mapping[str, Family]) -> list[dict[str, Any]]:
    """Rows of studies, where those of the members of a family are one row, in the place of the first.

    A column in which members differ has the number of its values; their states are counted.
    """
    owner = {member: name for name, family in families.items() for member in family.members}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(owner.get(row["study"], row["study"]), []).append(row)
    return [
        dict(group[0]) if name not in families else _merge_rows(families[name], group) for name, group in groups.items()
    ]


def _merge_rows(family: Family, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for the members of a family."""
    values = {key: list(dict.fromkeys(row[key] for row in rows)) for key in rows[0]}
    merged = {key: distinct[0] if len(distinct) == 1 else f"{len(distinct)} values" for key, distinct in values.items()}
    states = Counter(row["state"].partition(":")[0] for row in rows)
    states_text = ", ".join(f"{number} {state}" for state, number in states.items())
    return {**merged, "study": family.name, "state": f"{len(rows)} studies by {family.axis}: {states_text}"}


def describe_state(home: Home, name: str, study: Study) -> str:
    """The state of a study in a few words."""
    from dagster_project.analysis.metrics import Metrics
    from storage.warehouse.connection import locate_database
    from storage.zarr.arrays import TENSORS
    from storage.zarr.layers import list_attending_layers
    from storage.zarr.sequences import SequenceStore

    if locate_database(home.warehouse, name).exists():
        return "reported" if home.report(name).exists() else "landed"
    try:
        if not home.tensors(name).exists():
            return "not run; needs a GPU" if study.needs_gpu else "not run"
    except UserError:  # an object store that does not answer
        return "unknown: its tensors cannot be reached; see doctor"
    try:
        store = SequenceStore.open(home.tensors(name), TENSORS)
        if home.metrics(name).exists():
            total = len(list_attending_layers(store))
            missing = len(Metrics.of(home, name, store, study.analysis).find_missing())
            return f"measured: {total - missing} of {total} layers"
        total = store.sizes["sequence"]
        return f"extracted: {total - len(store.find_missing())} of {total} sequences"
    except Exception:  # noqa: BLE001 (the other studies are still listed)
        return "extracted: cannot be read; see doctor"
