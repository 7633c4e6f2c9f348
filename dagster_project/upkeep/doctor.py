"""The command ``attention-geometry doctor``: versions, devices, and what is incomplete or damaged in the data root."""

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rich.table import Table

from attention_geometry.packages import ROOT, find_overwritten
from dagster_project.analysis.metrics import Metrics
from dagster_project.assets.asset import Asset
from dagster_project.assets.catalogue import ASSETS, select_assets
from dagster_project.assets.families import explain_stale_family, read_origins
from dagster_project.study.families import Family
from dagster_project.study.home import Home
from dagster_project.study.settings import Study
from dagster_project.study.studies import list_readable_families, list_readable_studies
from dagster_project.upkeep.clearing import Removal, find_leftovers
from reports.findings.numbers import count
from storage.errors import UserError, format_error
from storage.files.parts import INPUTS, is_whole, list_made, list_parts, locate_parts, read_inputs, read_part
from storage.files.pieces import read_pieces
from storage.files.places import OF_PARTS, LocalPlace, Place
from storage.warehouse.connection import FORCED, list_published, locate_database
from storage.warehouse.connection import verify as verify_database
from storage.zarr.arrays import TENSORS
from storage.zarr.layers import list_attending_layers
from storage.zarr.sequences import SequenceStore

PACKAGES = (
    "attention-geometry", "torch", "transformers", "datasets", "zarr", "dask", "numba", "duckdb", "altair",
    "vl-convert-python", "dagster",
)  # fmt: skip


Kind = Literal["tensors", "metrics"]


def examine(home: Home) -> list[Table]:
    """One table each for versions, devices, the data root and its stores."""
    return [_tabulate_versions(), _tabulate_devices(), _tabulate_data_root(home), _tabulate_stores(home)]


def _tabulate_versions() -> Table:
    table = Table("package", "version", title="Versions", title_justify="left")
    table.add_row("python", platform.python_version())
    changed = ", ".join(find_overwritten())
    table.add_row("our packages", f"{ROOT}: overwritten: {changed}" if changed else f"{ROOT}, all our own")
    for package in PACKAGES:
        try:
            table.add_row(package, version(package))
        except PackageNotFoundError:
            table.add_row(package, "not installed")
    return table


def _tabulate_devices() -> Table:
    import torch

    table = Table("device", "what", title="Devices", title_justify="left")
    table.add_row("cpu", f"{count(os.cpu_count() or 1, 'core')}, {count(torch.get_num_threads(), 'torch thread')}")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        table.add_row(f"cuda:{index}", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if not torch.cuda.is_available():
        table.add_row("cuda", "none")
    return table


def _tabulate_data_root(home: Home) -> Table:
    table = Table("what", "state", title="Data root", title_justify="left")
    table.add_row("folder", str(home.root))
    for name, place in (("tensors", home.tensor_root), ("metrics", home.metric_root)):
        if place:
            table.add_row(name, str(place))
    try:
        home.prepare()
        table.add_row("writable", "yes")
        table.add_row("free space", f"{shutil.disk_usage(home.root).free / 1e9:.1f} GB")
    except UserError as error:
        table.add_row("writable", f"no: {error}")
    if damaged := [each for each in _verify_databases(home) if each.damage]:
        table.add_row("Dagster's records", "\n".join(str(each.damage) for each in damaged))
    leftovers = find_leftovers(home)
    table.add_row("leftovers of killed runs", "\n".join(str(path) for path in leftovers) or "none")
    if leftovers:
        table.add_row("to remove them", "attention-geometry doctor --clean")
    return table


def _tabulate_stores(home: Home) -> Table:
    """Every store of the data root with its missing sequences, every published database, and every page."""
    table = Table("store", "study", "state", title="Stores", title_justify="left")
    for kind, describe in DESCRIBED.items():
        for name, state in _iterate_states(home, kind, describe):
            table.add_row(kind, name, state)
    for tables in sorted((home.root / "parts").glob("*/")):
        if tables.suffix not in {".partial", ".replaced"}:
            table.add_row("parts", tables.name, _describe_parts(home, tables.name))
    families = _describe_families(home)
    for name, path in list_published(home.warehouse).items():
        state = families.get(name, "published")
        table.add_row("warehouse", name, f"{state}, {path.stat().st_size / 1e6:.1f} MB")
    for pages in (home.reports, home.families, home.comparisons):
        for path in sorted(pages.glob("*.html")):
            table.add_row(pages.name, path.stem, f"written, {path.stat().st_size / 1e6:.1f} MB")
    return table


def _describe_families(home: Home) -> dict[str, str]:
    """The state of the published tables of each family, also of one that no entry defines any more."""
    families, studies = list_readable_families(home), list_readable_studies(home)[0]
    unknown = [name for name in list_published(home.warehouse) if name not in studies and name not in families]
    orphans = {name: members for name in unknown if (members := read_origins(home, name)) is not None}
    known = [name for name in families if locate_database(home.warehouse, name).exists()]
    return {name: _describe_family(home, families[name]) for name in known} | {
        name: f"family of {count(len(of), 'study', 'studies')} that no entry defines: attention-geometry clear {name}"
        for name, of in orphans.items()
    }


def _describe_family(home: Home, family: Family) -> str:
    """The state of a family whose tables are published: missing members, and whether it is current."""
    lacking = [study for study in family.members if not locate_database(home.warehouse, study).exists()]
    missing = f"; missing: {', '.join(lacking)}" if lacking else ""
    why = explain_stale_family(home, family)
    state = f"stale ({why}); renew it: attention-geometry refresh {family.name}" if why else "current"
    return f"family of {count(len(family.members), 'study', 'studies')}{missing}, {state}"


def _iterate_states(home: Home, kind: Kind, describe: Callable[[Home, str], str]) -> Iterator[tuple[str, str]]:
    """The studies that have tensors or metrics, and the state of these."""
    try:
        names = _list_stored(home, kind)
    except UserError as error:  # the object store does not answer
        yield "all", str(error)
        return
    for name in names:
        try:
            yield name, describe(home, name)
        except Exception as error:  # noqa: BLE001 (the others are still examined)
            yield name, format_error(error)


def _list_stored(home: Home, kind: Kind) -> list[str]:
    """The studies that have tensors or metrics."""
    suffix, folders = (".zarr" if kind == "tensors" else ".parts"), home.locate_stores(kind).list_folders()
    return [name.removesuffix(suffix) for name in folders if name.endswith(suffix)]


def _describe_tensors(home: Home, name: str) -> str:
    store = SequenceStore.open(home.tensors(name), TENSORS)
    missing, total = store.find_missing(), store.sizes["sequence"]
    size = f"{store.path.measure_size() / 1e6:.1f} MB"
    if missing:
        return f"incomplete: {len(missing)} of {total} sequences are missing; run the study again ({size})"
    dropped = f", {' and '.join(store.dropped)} dropped" if store.dropped else ""
    return f"complete: {count(total, 'sequence')}{dropped}, {size}"


def _describe_metrics(home: Home, name: str) -> str:
    study, size = list_readable_studies(home)[0].get(name), f"{home.metrics(name).measure_size() / 1e6:.1f} MB"
    if study is None:
        return f"of no known study, {size}"
    tensors = SequenceStore.open(home.tensors(name), TENSORS)
    missing, total = Metrics.of(home, name, tensors, study.analysis).find_missing(), list_attending_layers(tensors)
    if missing:
        return f"incomplete: {len(missing)} of {len(total)} layers are missing; run the study again ({size})"
    return f"complete: {count(len(total), 'layer')}, {size}"


DESCRIBED: Mapping[Kind, Callable[[Home, str], str]] = {"tensors": _describe_tensors, "metrics": _describe_metrics}
"""What says the state of the stores of a study."""


def _describe_parts(home: Home, name: str) -> str:
    """Which of the tables that a study asks for have a part; of an unknown study, of all."""
    study = list_readable_studies(home)[0].get(name)
    assets = [asset for asset in (ASSETS if study is None else select_assets(study)) if asset.tables]
    if lost := [table for asset in assets for table in _list_lost(home.parts(name), asset)]:
        return f"incomplete: {', '.join(lost)} missing or damaged; run the study again"
    tables = sum(len(asset.tables) for asset in assets)
    return f"complete: {tables} tables, {LocalPlace(home.parts(name)).measure_size() / 1e6:.1f} MB"


def _list_lost(folder: Path, asset: Asset, is_there: Callable[[Place], bool] = is_whole) -> list[str]:
    """The tables of an asset without a part that is whole, or is there, whatever it is made from."""
    there = {
        part.name for made in list_made(LocalPlace(folder), asset.name) for part in filter(is_there, list_parts(made))
    }
    return [table for table in asset.tables if f"{table}.parquet" not in there]


def _is_there(part: Place) -> bool:
    """Whether a part is there; an empty file is damage, which is told of the part itself."""
    return part.exists() or part.parent.has_file(part.name)


def tabulate_removals(removed: Iterable[Removal]) -> Table:
    """A table of what was removed, with its size and the total, and of what was kept, and why."""
    table = Table("what", "bytes", title="Removal", title_justify="left")
    total = 0
    for each in removed:
        table.add_row(str(each.path), f"kept: {each.kept}" if each.kept else f"{each.bytes:,}")
        total += each.bytes
    table.add_row("total", f"{total:,}")
    return table


@dataclass(frozen=True)
class Verdict:
    """The result of verifying one store, table or database."""

    what: Place
    damage: str | None
    """What is wrong and the remedy, in one line; None if all checksums match."""
    in_work: bool = False
    """Whether it could not be read because a process is working on its study."""


def verify(home: Home) -> Iterator[Verdict]:
    """Read everything that has checksums: all stores, parts and pieces of tables, databases, Dagster's records.

    ``UserError`` if an object store does not answer.
    """
    for name in _list_stored(home, "tensors"):
        place = home.tensors(name)
        yield _verify_place(home, name, place, partial(_find_store_damage, place, name))
    for study, folder in _list_part_folders(home):
        for part in list_parts(folder) or [folder.join(INPUTS)]:
            yield _verify_place(home, study, part, partial(_find_part_damage, part, study))
    studies = list_readable_studies(home)[0]
    for name in sorted(list_published(home.warehouse).keys() & studies.keys()):
        database = LocalPlace(locate_database(home.warehouse, name))
        yield _verify_place(home, name, database, partial(_find_lost_parts, home, name, studies[name]))
    for pieces in sorted((home.root / "parts").glob("*/*.pieces")):
        yield _verify_place(home, pieces.parent.name, LocalPlace(pieces), partial(_find_piece_damage, pieces))
    families = list_readable_families(home)
    for name, path in list_published(home.warehouse).items():
        remedy = name if name in families else f"{name} {FORCED}"
        yield _verify_place(home, name, LocalPlace(path), partial(_find_database_damage, path, remedy))
    databases = list(_verify_databases(home))
    yield from databases
    if databases and not any(each.damage for each in databases):
        from dagster_project.records.opening import REBUILD, find_unreadable_records

        why = find_unreadable_records(home)
        said = f"Dagster's records in {home.dagster} are damaged ({why}); rebuild them: {REBUILD}" if why else None
        yield Verdict(LocalPlace(home.dagster), said)


def _list_part_folders(home: Home) -> Iterator[tuple[str, Place]]:
    """The folders of parts, of tables and of metrics, each with its study."""
    tables: Place = LocalPlace(home.root / "parts")
    of_studies = [(study, tables.join(study)) for study in tables.list_folders()]
    of_studies += [(study, home.metrics(study)) for study in _list_stored(home, "metrics")]
    for study, folder in of_studies:
        yield from ((study, folder.join(name)) for name in folder.list_folders() if OF_PARTS.search(name))


def _verify_databases(home: Home) -> Iterator[Verdict]:
    """Check every database of Dagster's records."""
    from dagster_project.records.opening import REBUILD, examine_databases

    for path, why in examine_databases(home):
        yield Verdict(
            LocalPlace(path), f"{path} is damaged ({why}); rebuild Dagster's records: {REBUILD}" if why else None
        )


def _verify_place(home: Home, study: str, what: Place, find_damage: Callable[[], str | None]) -> Verdict:
    """The damage that a check finds: the first check takes no lock; damage is confirmed while no process works on it.

    An unexpected error counts as damage. ``UserError`` if an object store does not answer.
    """

    def look() -> str | None:
        try:
            return find_damage()
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 (the others are still read)
            return f"{what} cannot be read ({format_error(error)}); rebuild it: attention-geometry run {study} --fresh"

    if look() is None:
        return Verdict(what, None)
    with ExitStack() as stack:
        try:
            stack.enter_context(home.claim(study))
        except UserError:
            return Verdict(what, None, in_work=True)
        return Verdict(what, look() if what.exists() or what.is_remote else None)


def tabulate_verdicts(verdicts: Iterable[Verdict]) -> Table:
    """A table of what is damaged, with its remedy, what could not be read, and how many are intact."""
    table = Table("read", "state", title="Checksums", title_justify="left")
    whole = 0
    for each in verdicts:
        if each.damage or each.in_work:
            table.add_row(str(each.what), each.damage or "not read: a process is working on it")
        else:
            whole += 1
    table.add_row("all others" if table.row_count else "everything", f"{whole} intact")
    return table


def _find_store_damage(place: Place, study: str) -> str | None:
    """The first damage of a store; None if there is none."""
    try:
        SequenceStore.open(place, TENSORS).verify()
    except UserError as error:
        fresh = " --fresh" if "--fresh" in str(error) else ""
        return f"{error}: attention-geometry run {study}{fresh}"
    return None


def _find_database_damage(path: Path, what: str) -> str | None:
    """The damage of a database, with the remedy: to run ``what``; None if there is none."""
    why = verify_database(path)
    return f"{path} is damaged ({why}); rebuild it: attention-geometry run {what}" if why else None


def _find_piece_damage(path: Path) -> str | None:
    """The damage of the pieces of an unfinished computation; None if there is none."""
    remedy = f"continue the run, which computes it again: attention-geometry run {path.parent.name}"
    return f"{path} has changed since it was written; {remedy}" if read_pieces(path)[1] else None


def _find_part_damage(part: Place, study: str) -> str | None:
    """The damage of a part of a table, or of the inputs beside it; None if there is none."""
    if part.name == INPUTS:
        lost = part.parent.has_file(INPUTS) and read_inputs(part.parent) is None
        return f"{part} has changed since it was written; run: attention-geometry run {study}" if lost else None
    try:
        for _ in read_part(part):
            pass
    except UserError as error:
        return f"{error}: attention-geometry run {study}"
    return None


def _find_lost_parts(home: Home, name: str, study: Study) -> str | None:
    """Which tables and layers of a landed study have no part; None if all have one."""
    folder = home.parts(name)
    lost = [table for asset in select_assets(study) for table in _list_lost(folder, asset, _is_there)]
    lost += [f"layer {layer}" for layer in _list_lost_layers(home, name, study)]
    return f"{', '.join(lost)} in {folder} lost; run the study again: attention-geometry run {name}" if lost else None


def _list_lost_layers(home: Home, name: str, study: Study) -> list[int]:
    """The layers whose measured parts are not all there; none if the tensors, which tell of themselves, are damaged."""
    try:
        tensors = SequenceStore.open(home.tensors(name), TENSORS)
        metrics, layers = Metrics.of(home, name, tensors, study.analysis), list_attending_layers(tensors)
    except UserError:
        return []
    parts = {layer: list_parts(locate_parts(metrics.folder, metrics.build_inputs(layer))) for layer in layers}
    return [layer for layer, of_layer in parts.items() if not of_layer or not all(map(_is_there, of_layer))]
