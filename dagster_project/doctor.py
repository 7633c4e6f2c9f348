"""What ``attention-geometry doctor`` says: versions, devices, the data root and what in it is incomplete.

Holds the examination. What does not belong here: repairs.
"""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from dagster_project.home import Home
from storage.errors import UserError

PACKAGES = (
    "attention-geometry", "torch", "transformers", "datasets", "zarr", "dask", "numba", "duckdb", "altair",
    "vl-convert-python", "dagster",
)  # fmt: skip


def examine(home: Home) -> Iterator[Table]:
    """One table each for versions, devices, the data root and its stores."""
    yield _versions()
    yield _devices()
    yield _data_root(home)
    yield _stores(home)


def _versions() -> Table:
    table = Table("package", "version", title="Versions", title_justify="left")
    table.add_row("python", platform.python_version())
    for package in PACKAGES:
        try:
            table.add_row(package, version(package))
        except PackageNotFoundError:
            table.add_row(package, "not installed")
    return table


def _devices() -> Table:
    import torch

    table = Table("device", "what", title="Devices", title_justify="left")
    table.add_row("cpu", f"{os.cpu_count()} cores, {torch.get_num_threads()} torch threads")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        table.add_row(f"cuda:{index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if not torch.cuda.is_available():
        table.add_row("cuda", "none")
    return table


def _data_root(home: Home) -> Table:
    table = Table("what", "state", title="Data root", title_justify="left")
    table.add_row("folder", str(home.root))
    if home.tensor_root:
        table.add_row("tensors", str(home.tensor_root))
    try:
        home.prepare()
        table.add_row("writable", "yes")
        table.add_row("free space", f"{shutil.disk_usage(home.root).free / 1e9:.1f} GB")
    except UserError as error:
        table.add_row("writable", f"no: {error}")
    places = [home.root, *([home.tensor_root] if isinstance(home.tensor_root, Path) else [])]
    leftovers = [leftover for place in places for leftover in _leftovers(place)]
    table.add_row("leftovers of killed runs", "\n".join(str(path) for path in leftovers) or "none")
    return table


def _stores(home: Home) -> Table:
    """Every store below the data root with what its ledger lacks, and every published database."""
    from storage.warehouse import published

    table = Table("store", "study", "state", title="Stores", title_justify="left")
    for folder in ("tensors", "metrics"):
        for name, state in _states(home, folder):
            table.add_row(folder, name, state)
    for tables in sorted((home.root / "summaries").glob("*/")):
        if tables.suffix not in {".partial", ".replaced"}:
            table.add_row("summaries", tables.name, _summaries(home, tables.name))
    for study, path in published(home.warehouse).items():
        table.add_row("warehouse", study, f"published, {path.stat().st_size / 1e6:.1f} MB")
    for pages in (home.reports, home.comparisons):
        for path in sorted(pages.glob("*.html")):
            table.add_row(pages.name, path.stem, f"written, {path.stat().st_size / 1e6:.1f} MB")
    return table


def _states(home: Home, folder: str) -> Iterator[tuple[str, str]]:
    """The studies that have a store, and its state; of those in an object store, the ones that are known."""
    from dagster_project.studies import all_studies

    where = home.tensor_root if folder == "tensors" and home.tensor_root else home.root / folder
    try:
        if isinstance(where, Path):
            names = sorted(path.stem for path in where.glob("*.zarr"))
        else:
            names = sorted(name for name in all_studies(home) if home.tensors(name).exists())
    except UserError as error:  # the object store does not answer
        yield "all", str(error)
        return
    for name in names:
        yield name, _state(home, name, folder)


def _state(home: Home, name: str, folder: str) -> str:
    from dagster_project.pipeline import open_metrics
    from storage.arrays import TENSORS
    from storage.sequences import SequenceStore

    try:
        store = SequenceStore.open(home.tensors(name), TENSORS) if folder == "tensors" else open_metrics(home, name)
    except UserError as error:
        return str(error)
    missing, total = store.missing(), store.sizes["sequence"]
    size = f"{store.bytes_on_disk() / 1e6:.1f} MB"
    if missing:
        return f"incomplete: {len(missing)} of {total} sequences are missing; run the study again ({size})"
    dropped = f", {' and '.join(store.dropped)} dropped" if store.dropped else ""
    return f"complete: {total} sequences{dropped}, {size}"


def _summaries(home: Home, name: str) -> str:
    """Which of a study's small tables are there."""
    from dagster_project.pipeline import summary_paths
    from dagster_project.summaries import STEPS
    from storage.summaries import made_from

    paths = [path for step in STEPS.values() for path in summary_paths(home, name, step).values()]
    if missing := [path.stem for path in paths if made_from(path) is None]:
        return f"incomplete: {', '.join(missing)} missing or damaged; run the study again"
    return f"complete: {len(paths)} tables, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB"


def _leftovers(root: Path) -> list[Path]:
    """Files and folders that a killed process left half-written."""
    found = [*root.rglob("*.partial*"), *root.rglob("*.replaced")]
    return sorted(
        path for path in found if not any(mark in path.parent.as_posix() for mark in (".partial", ".replaced"))
    )
