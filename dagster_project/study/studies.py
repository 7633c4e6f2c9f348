"""Files of studies: ``studies.yaml``, read with errors that name study, field and remedy, and records of new studies.

Keys that occur twice are errors, and documents that would take much time or memory are refused.

The settings of a study are in ``dagster_project.study.settings``.
"""

import difflib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dagster_project.study.families import Entries, Family, Fault, expand_families
from dagster_project.study.home import Home, is_valid_name
from dagster_project.study.settings import (
    RANDOM,
    Study,
    find_owner,
    find_twin_name,
    iterate_with_twins,
    make_random_twin,
)
from extract.hub import exists
from storage.errors import QuotingError, UserError
from storage.files.locks import hold_lock
from storage.files.staging import stage_file
from storage.files.user_paths import read_regular_file

COMMAND_LINE = "command line"
"""The source of a study that is defined by options, in messages."""

HEADING = "studies:"
"""The first line of a studies file that this program writes."""

DEEPEST = 32
"""Most levels of nesting; ``studies.yaml`` has five."""

MOST_ALIASES = 1000
"""Most references to anchors: each may expand to a document as large as the rest."""

MOST_EVENTS = 2**16
"""Most values, and beginnings and ends of lists and mappings: those of a thousand studies."""

LARGEST = 10_000_000
"""Most characters of a document."""


EVENTS = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads a document ten times as fast where PyYAML is compiled, but quotes no lines in errors."""


def locate_shipped_file() -> Path:
    """The shipped ``studies.yaml``: next to the packages in a checkout, inside this package when installed."""
    installed = Path(__file__).parents[1] / "studies.yaml"
    return installed if installed.exists() else Path(__file__).parents[2] / "studies.yaml"


def list_studies(home: Home) -> dict[str, Study]:
    """All studies by name: those shipped and those recorded in the data root.

    ``UserError`` if a file has an error, or both define the same name.
    """
    shipped, own = _read_entries(locate_shipped_file()), _read_entries(home.studies_file)
    return {name: _resolve_study(home.studies_file, name, shipped, own) for name in _list_names(shipped, own)}


def list_families(home: Home) -> dict[str, Family]:
    """All families by name whose entries can be read, shipped or own; ``UserError`` if a file is not valid."""
    shipped, own = _read_entries(locate_shipped_file()), _read_entries(home.studies_file)
    taken = set(shipped.list_names())
    return {**shipped.families, **{name: family for name, family in own.families.items() if name not in taken}}


def list_readable_families(home: Home) -> dict[str, Family]:
    """As ``list_families``; none if a file is not valid, which ``list_readable_studies`` tells."""
    try:
        return list_families(home)
    except UserError:
        return {}


def find_family(home: Home, name: str) -> Family:
    """The family called ``name``; ``UserError`` if there is none."""
    known = list_families(home)
    if name not in known:
        raise UserError(
            f"There is no family '{name}'; {'there are ' + ', '.join(known) if known else 'no family is defined'}"
        )
    return known[name]


def check_partition(home: Home, name: str) -> None:
    """Refuse (``UserError``) a partition that is no study or family: a run in the web UI may be given any text."""
    if not is_valid_name(name):
        raise UserError(
            f"The partition '{name}' cannot be the name of a study or a family; choose one that is registered"
        )
    if name not in list_families(home):
        find_study(home, name)


def expand_names(home: Home, names: Iterable[str]) -> list[str]:
    """Names of studies, where a family stands for its members; each once. Errors are those of ``list_families``."""
    families = list_families(home)
    members = (list(families[name].members) if name in families else [name] for name in names)
    return list(dict.fromkeys(name for of_name in members for name in of_name))


def _list_names(shipped: Entries, own: Entries) -> list[str]:
    """The names of the studies of two files and of their generated twins, each once."""
    return list(dict.fromkeys([*iterate_with_twins(shipped.studies), *iterate_with_twins(own.studies)]))


def list_readable_studies(home: Home) -> tuple[dict[str, Study], dict[str, UserError]]:
    """The studies that can be read, by name; and the errors of the others, by name, or of a file, by its path."""
    shipped = _read_entries(locate_shipped_file())
    errors: dict[str, UserError] = {}
    try:
        own = _read_entries(home.studies_file)
    except UserError as error:
        own, errors = Entries({}, {}), {str(home.studies_file): error}
    readable = {}
    for name in _list_names(shipped, own):
        try:
            readable[name] = _resolve_study(home.studies_file, name, shipped, own)
        except UserError as error:
            errors[str(name)] = error
    return readable, errors


def _resolve_study(file: Path, name: str, shipped: Entries, own: Entries) -> Study:
    """One study of those shipped and those of a file of one's own, or the generated twin of one."""
    if name in own.studies and name in set(shipped.list_names()):
        raise UserError(f"{file}: study '{name}' is already shipped with the product; give it another name")
    if owner := find_owner(name, {**own.studies, **shipped.studies}):
        if name in shipped.studies or name in own.studies:
            raise UserError(
                f"{file}: study '{name}' has the name of the twin that study '{owner}' requests; give it "
                f"another name, or set twin: {name} in '{owner}'"
            )
        if not is_valid_name(name):
            raise UserError(
                f"The name of the study '{owner}' leaves no room for that of its twin, '{name}'; use up to "
                f"{len(owner) - len(name) + 64} characters, or leave out the twin"
            )
        return make_random_twin(_resolve_study(file, owner, shipped, own))
    path, of_file = (locate_shipped_file(), shipped) if name in shipped.studies else (file, own)
    return parse_study(name, _anchor_paths(of_file.studies[name], path.parent), path)


def find_study(home: Home, name: str) -> Study:
    """The study called ``name``; errors in other studies are ignored.

    ``UserError`` if there is none; the message suggests the closest name.
    """
    shipped, own = _read_entries(locate_shipped_file()), _read_entries(home.studies_file)
    if name in _list_names(shipped, own):
        return _resolve_study(home.studies_file, name, shipped, own)
    families = list_families(home)
    if name in families:
        raise UserError(
            f"'{name}' is a family of studies; name one of them, such as {next(iter(families[name].members))}"
        )
    members = {member for family in families.values() for member in family.members}
    known = [*(study for study in list_studies(home) if study not in members), *families]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(known)};"
    raise UserError(f"There is no study '{name}'; {hint} `attention-geometry studies` lists them")


def check_twin(home: Home, name: str, study: Study) -> None:
    """Refuse a twin (``UserError``) that does not exist, whose weights are not random, or whose model is another."""
    twin = find_twin_name(name, study)
    if twin is None:
        return
    study_of_twin = find_study(home, twin)
    if study_of_twin.model.weights != RANDOM:
        raise UserError(
            f"The study '{twin}' cannot be the twin of '{name}', because its weights are trained; set twin: {RANDOM}, "
            f"or give '{twin}' random weights"
        )
    if (study_of_twin.model.name, study_of_twin.model.revision) != (study.model.name, study.model.revision):
        raise UserError(
            f"The study '{twin}' cannot be the twin of '{name}': its model is {study_of_twin.model.name}, not "
            f"{study.model.name}; set twin: {RANDOM}"
        )


def read_studies(path: Path) -> dict[str, Study]:
    """Read the studies of one file, with their generated twins; none if the file does not exist.

    ``UserError`` if the file is not valid YAML or a study in it is malformed.
    """
    none, own = Entries({}, {}), _read_entries(path)
    return {name: _resolve_study(path, name, none, own) for name in _list_names(none, own)}


def _read_entries(path: Path) -> Entries:
    """Read the settings of each study of a file, unchecked, and its families; none if the file does not exist."""
    if not path.exists():
        return Entries({}, {})
    try:
        content = parse_yaml(read_regular_file(path, LARGEST).decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise QuotingError(f"{path} is not valid YAML: {error}") from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); put a file of studies there, or remove it"
        ) from error
    if not isinstance(content, dict) or set(content) != {"studies"} or not isinstance(content["studies"], dict):
        raise UserError(
            f"{path} must contain one mapping 'studies' from names to settings; see the shipped studies.yaml"
        )
    return expand_families(content["studies"])


def _anchor_paths(settings: object, folder: Path) -> object:
    """Settings in which relative paths of model and corpus are resolved against the folder of their file."""
    if not isinstance(settings, dict):
        return settings
    anchored = dict(settings)
    for part in ("model", "corpus"):
        given = anchored.get(part)
        identity = given.get("id") if isinstance(given, dict) else given
        if isinstance(identity, str) and (identity.startswith(("./", "../")) or exists(str(folder / identity))):
            place = str((folder / identity).resolve())
            anchored[part] = {**given, "id": place} if isinstance(given, dict) else place
    return anchored


def parse_study(name: object, settings: object, source: object) -> Study:
    """Parse the settings of one study.

    ``UserError`` if the name is not a safe file name, or a field is unknown, missing or malformed.
    """
    if not isinstance(name, str) or not is_valid_name(name):
        raise UserError(
            f"{source}: '{name}' cannot be the name of a study; use up to 64 lower-case letters, digits, '.', '_' and "
            "'-', beginning and ending with a letter or digit"
        )
    if isinstance(settings, Fault):
        raise UserError(f"{source}: {settings.reason}")
    try:
        return Study.model_validate(settings)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")  # it explains more
        missing = [".".join(map(str, problem["loc"])) for problem in problems if problem["type"] == "missing"]
        if len(missing) == len(problems) > 1:
            options = [f"--{field.removesuffix('.id').replace('_', '-')}" for field in missing]
            what = options if source == COMMAND_LINE else missing
            raise UserError(
                f"{source}: study '{name}' lacks {', '.join(what[:-1])} and {what[-1]}; add them"
            ) from error
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{source}: study '{name}', {_explain_problem(problems[0])}{more}") from error


def _explain_problem(problem: ErrorDetails) -> str:
    """Describe which field is wrong, why, and the remedy."""
    path = ".".join(str(part) for part in problem["loc"])
    field = f"field '{path}'" if path else "settings"
    known = _describe_fields(Study)
    meaning = known.get(".".join(part for part in problem["loc"] if isinstance(part, str)), "")
    if problem["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path, known, n=1)
        remedy = f"did you mean '{close[0]}'?" if close else f"the fields are {', '.join(known)}"
        return f"{field} is unknown; {remedy}"
    meaning = f" ({meaning})" if meaning else ""
    if problem["type"] == "missing":
        return f"{field} is missing; add it{meaning}"
    return f"{field}: {problem['msg'][0].lower()}{problem['msg'][1:]}, found {problem['input']!r}{meaning}"


def _describe_fields(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """The descriptions of all fields of a model and its nested models, by their dotted names."""
    described: dict[str, str] = {}
    for name, field in model.model_fields.items():
        described[prefix + name] = field.description or ""
        for part in (field.annotation, *get_args(field.annotation)):  # an optional part is a union
            if isinstance(part, type) and issubclass(part, BaseModel):
                described |= _describe_fields(part, f"{prefix}{name}.")
    return described


@contextmanager
def record_tentatively(home: Home, name: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Record a study to run inside the context; if it is refused before anything is stored, remove the new record.

    So a mistake in the settings can be fixed under the same name. Errors are those of ``record_study``.
    """
    new = record_study(home, name, settings)
    try:
        yield
    except (UserError, OSError):
        if new and not home.tensors(name).exists():
            with suppress(OSError):  # the user needs to see why the study was refused
                _forget(home, name, settings)
        raise


def record_study(home: Home, name: str, settings: Mapping[str, Any]) -> bool:
    """Add a study to the data root's own file; return False if it exists, or is shipped, with the same settings.

    ``UserError`` if the settings are malformed, or another study has the name.
    """
    study = parse_study(name, dict(settings), COMMAND_LINE)
    home.prepare()
    with hold_lock(home.root / "studies.lock", str(home.studies_file), wait=10):
        existing = list_studies(home).get(name)
        if name in list_families(home):
            raise UserError(f"'{name}' is the name of a family of studies; choose another --name")
        if existing is None:
            _append(home.studies_file, name, settings)
        elif existing != study:
            raise UserError(
                f"There is already a study '{name}' with other settings; choose another --name, "
                f"or run that one: attention-geometry run {name}"
            )
    return existing is None


def _forget(home: Home, name: str, settings: Mapping[str, Any]) -> None:
    """Remove from the data root's own file what ``record_study`` added; later additions of others are kept."""
    with hold_lock(home.root / "studies.lock", str(home.studies_file), wait=10):
        rest = home.studies_file.read_text(encoding="utf-8").replace(_format_block(name, settings), "", 1)
        if rest.strip() == HEADING:
            home.studies_file.unlink()
        else:
            _replace(home.studies_file, rest)


def _append(path: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Append a study to a file, leaving its existing text unchanged."""
    before = path.read_text(encoding="utf-8").rstrip() if path.exists() else HEADING
    try:
        _replace(path, f"{before}\n{_format_block(name, settings)}")
    except UserError as error:
        raise UserError(f"The study '{name}' could not be added to {path}; add it by hand below '{HEADING}'") from error


def _format_block(name: str, settings: Mapping[str, Any]) -> str:
    """The lines of one study in a studies file."""
    block = yaml.safe_dump({name: dict(settings)}, sort_keys=False, allow_unicode=True)
    return "".join(f"  {line}\n" for line in block.splitlines())


def _replace(path: Path, text: str) -> None:
    """Replace the text of a studies file, if the new text can be read as one."""
    with stage_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
        read_studies(partial)


# --- YAML ---


class _StrictLoader(yaml.SafeLoader):
    """A loader of plain values that refuses duplicate keys, and values that Python cannot hold or print."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct the value of a node; ``ConstructorError`` for a date that does not exist, or a very long number."""
        try:
            made = super().construct_object(node, deep)
            str(made if isinstance(made, int) else "")
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error
        return made

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct the mapping of a node; ``ConstructorError`` if a key occurs twice."""
        places: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in places:
                    first = f"'{key.value}' is defined twice, first"
                    raise yaml.constructor.ConstructorError(first, places[key.value], "and again", key.start_mark)
                places[key.value] = key.start_mark
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def parse_yaml(text: str) -> Any:
    """Parse a YAML document; ``YAMLError`` also if it is too large, or has too many levels, values or aliases."""
    return deepcopy(_load_document(text))


@lru_cache(maxsize=8)
def _load_document(text: str) -> Any:
    if len(text) > LARGEST:
        raise yaml.YAMLError(f"it has {len(text)} characters; the limit is {LARGEST}")
    with suppress(yaml.MarkedYAMLError):  # told by the loader
        _refuse_large(text)
    return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a safe loader)


def _refuse_large(text: str) -> None:
    """Refuse a document (``YAMLError``) that would take much time or memory to load, as soon as that is seen."""
    depth = aliases = 0
    for number, event in enumerate(yaml.parse(text, Loader=EVENTS)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        counts = (
            (depth, DEEPEST, "levels of nesting"),
            (aliases, MOST_ALIASES, "aliases"),
            (number, MOST_EVENTS, "values"),
        )
        for count, most, what in counts:
            if count > most:
                raise yaml.YAMLError(f"it has more than {most} {what}; simplify it\n{event.start_mark}")
