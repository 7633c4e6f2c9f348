"""What ``run`` and others are asked for, checked before heavy libraries are loaded, which takes seconds."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from dagster_project.study.home import Home
from dagster_project.study.settings import choose_controls
from dagster_project.study.studies import find_study, record_tentatively
from extract.hub import exists, expand_path
from extract.models.checks import check_device, check_hub, check_inputs
from extract.settings import SYNTHETIC
from storage.errors import UserError
from storage.files.places import LocalPlace
from storage.files.user_paths import resolve_path

PLAIN = ("context_length", "sequences", "seed", "bos", "dtype", "device", "device_map", "values")
"""Options of ``run`` that are settings as they stand."""


def collect_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a study that options of ``run`` give, with the controls of a new one, as in ``studies.yaml``."""
    text = {name: given[name] for name in ("subset", "split", "column")}
    weights = "random" if given["random_weights"] else None
    settings = {
        "model": build_input(given["model"], gguf=given["gguf"], revision=given["revision"], weights=weights),
        "corpus": build_input(given["corpus"], revision=given["corpus_revision"], **text, pack=given["pack"] or None),
        "queries": _parse_positions(given["queries"]),
        "batch_size": int(size) if (size := given["batch_size"]) is not None and size.isdecimal() else size,
        **{name: given[name] for name in PLAIN},
    }
    new = given["name"] is not None and not given["random_weights"] and given["model"] != SYNTHETIC
    off = {name: given[name] for name in ("no_twin", "no_probe", "every_query")}
    controls = choose_controls(given["twin"], **off, default=new, keys=given["context_length"])
    return {name: value for name, value in settings.items() if value is not None} | controls


def build_input(identity: str | None, **fields: Any) -> dict[str, Any] | str | None:
    """Model or corpus settings from options: the id alone, or the id with the given fields."""
    given = {key: value for key, value in fields.items() if value is not None}
    if identity is None:
        return given or None
    local = expand_path(identity)
    identity = str(resolve_path(local)) if exists(identity) or identity.startswith((".", "/", "~")) else identity
    return {"id": identity, **given} if given else identity


def _parse_positions(given: str | None) -> list[int] | None:
    """Parse the query positions of an option: integers separated by commas."""
    try:
        return None if given is None else [int(position) for position in given.split(",")]
    except ValueError as error:
        raise UserError(
            f"--queries {given} is not a list of positions; separate integers by commas, as in --queries 63,127"
        ) from error


@contextmanager
def select_study(home: Home, study: str | None, name: str | None, settings: dict[str, Any]) -> Iterator[str]:
    """Yield the name of the study to run; a new one is recorded."""
    if (study is None) == (name is None):
        raise UserError(
            "Name the study to run (attention-geometry run STUDY), or define a new one with --name; see run --help"
        )
    if study is not None and settings:
        raise UserError(
            f"The settings of study '{study}' are in studies.yaml; to run with others, define a new one with --name"
        )
    with nullcontext() if name is None else record_tentatively(home, name, settings):
        chosen = str(study if name is None else name)
        check_study(home, chosen)
        yield chosen


def check_study(home: Home, study: str) -> None:
    """Refuse (``UserError``) a study that cannot be run.

    There is none, its model or text is missing or does not fit its settings; or nothing is extracted yet and its device
    is missing, or the hub that has its model or text does not answer.
    """
    settings = find_study(home, study)
    check_inputs(settings)
    place = home.tensors(study)
    if isinstance(place, LocalPlace) and not place.exists():
        check_device(settings.device, needs_gpu=settings.needs_gpu)
        check_hub(settings)


def check_known(home: Home, *studies: str) -> None:
    """Refuse (``UserError``) names of studies that are neither defined nor landed."""
    for study in studies:
        if not (home.warehouse / f"{study}.duckdb").exists():
            find_study(home, study)


def parse_file(given: str) -> tuple[str, str]:
    """The name and the path of an option ``--file NAME=FILE``."""
    name, equals, path = given.partition("=")
    if not equals:
        raise UserError(f"--file {given} names no table; write --file NAME=FILE, as in --file mine=scores.csv")
    return name, path


def check_address(port: int, origins: Sequence[str]) -> None:
    """Refuse a port that cannot be listened on, and addresses of proxies that are not origins.

    ``UserError`` in either case.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in {"http", "https"} or not parts.hostname or origin != f"{parts.scheme}://{parts.netloc}":
            raise UserError(
                f"--origin {origin} is not the address of a host as browsers show it, such as https://host.example"
            )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"Port {port} cannot be used ({error.strerror}); choose another with --port") from error
