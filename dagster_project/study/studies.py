"""Studies: their settings, and the files that define them.

Defines ``Study``, reads ``studies.yaml`` with errors that name study, field and remedy, and records new studies.
"""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from dagster_project.study.documents import LARGEST, parse_yaml
from dagster_project.study.home import Home
from dagster_project.study.twins import RANDOM, find_owner, find_twin_name, iterate_with_twins, make_random_twin
from extract.hub import exists
from extract.settings import SYNTHETIC, ExtractionSettings
from storage.errors import QuotingError, UserError
from storage.files.locks import hold_lock
from storage.files.staging import UNFINISHED, stage_file
from storage.files.user_paths import read_regular_file

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
"""Valid names of studies: a name becomes file names and a partition key."""

KAPPAS = 16
"""Most values of κ in a study: each has its own row for every selection."""

COMMAND_LINE = "command line"
"""The source of a study that is defined by options, in messages."""

HEADING = "studies:"
"""The first line of a studies file that this program writes."""


TEMPERATURES, COLDEST, HOTTEST = 16, 1 / 64, 64.0
"""Most temperatures in a study, and their range: outside it all weight is on one key, or spread over all."""


def _parse_kappas(given: object) -> tuple[float, ...]:
    """Check that upper bounds can be computed for the numbers, and sort them."""
    found = _sort_numbers(given, most=KAPPAS, high=sys.float_info.max)
    if found is None:
        kind, message = "kappas", f"input should be a list of 1 to {KAPPAS} distinct positive finite numbers"
        raise PydanticCustomError(kind, message)
    return found


def _parse_temperatures(given: object) -> tuple[float, ...]:
    """Check that weights can be computed at the temperatures, and sort them."""
    found = _sort_numbers(given, most=TEMPERATURES, low=COLDEST, high=HOTTEST)
    if found is None:
        kind = "temperatures"
        message = (
            f"input should be a list of 1 to {TEMPERATURES} distinct numbers from 1/{1 / COLDEST:g} to {HOTTEST:g}"
        )
        raise PydanticCustomError(kind, message)
    return found


def _sort_numbers(given: object, *, most: int, low: float = 0.0, high: float) -> tuple[float, ...] | None:
    """The numbers of a list in ascending order; None unless they are ``most`` at most, distinct, > 0 and in range."""
    numbers = given if isinstance(given, list | tuple) else ()
    found = sorted({float(number) for number in numbers if _is_number(number) and number > 0 and low <= number <= high})
    return tuple(found) if 1 <= len(numbers) <= most and len(found) == len(numbers) else None


def _is_number(given: object) -> bool:
    """Whether a value is a number; true and false are not."""
    return isinstance(given, int | float) and not isinstance(given, bool)


Sizes = Annotated[tuple[Annotated[int, Field(ge=2, le=2**16)], ...], Field(min_length=1, max_length=16)]
"""Sizes of simulated heads."""


class MonteCarloGrid(BaseModel):
    """Heads to draw from the paper's assumptions, to test its bounds on: every combination is one grid point.

    Other parameters (C, and the phases of the weights) are those fitted to the study.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    head_dim: Sizes = Field(default=(16, 64, 128), description="lengths d of one value state")
    n_keys: Sizes = Field(default=(64, 256), description="numbers of keys, including the sink")
    n: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(1, 2, 4, 8, 16, 32, 64, 128),
        min_length=1,
        description="numbers N of selected keys; a grid point uses those below its n_keys",
    )
    beta: tuple[Annotated[float, Field(ge=0, allow_inf_nan=True)], ...] = Field(
        default=(0.1, 1.0, float("inf")),
        min_length=1,
        description="β of the cosines; .inf means independent directions",
    )
    lambda_sink: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(
        default=(0.1, 1.0), min_length=1, description="λ, norm of the sink's value state over C"
    )
    rho_0: tuple[Annotated[float, Field(gt=-1, lt=1)], ...] = Field(
        default=(0.0, 0.2), min_length=1, description="ρ_0, cosine of the sink's value state with the others"
    )
    draws: int = Field(default=100, ge=2, le=10_000, description="heads drawn at each grid point")

    @field_validator("head_dim", "n_keys", "n", "beta", "lambda_sink", "rho_0")
    @classmethod
    def _check_distinct(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(given)) < len(given):
            kind, message = "repeated", "input should name every value once"
            raise PydanticCustomError(kind, message)
        return given

    @field_validator("n")
    @classmethod
    def _check_n(cls, n: tuple[int, ...], known: ValidationInfo) -> tuple[int, ...]:
        if (least := min(known.data.get("n_keys", (2**16 + 1,)))) <= min(n):
            kind = "too_large"
            raise PydanticCustomError(
                kind, "at least one N should be below {least}, the smallest n_keys", {"least": least}
            )
        return n


class Nulls(BaseModel):
    """How much of a study is compared with chance."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sequences: int = Field(
        default=24, ge=1, description="number of sequences that are compared, the first ones; all if there are fewer"
    )
    draws: int = Field(
        default=4, ge=0, le=1000, description="draws of each null for every sequence, query and head; 0 for no nulls"
    )


def _parse_nulls(given: object) -> object:
    """Read null as no draws."""
    return {"draws": 0} if given is None else given


Share = Annotated[float, Field(gt=0, le=1)]


class EffectsSettings(BaseModel):
    """Interventions on the heads of the study's model, which measure what the heads contribute."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ablation: tuple[Literal["zero", "mean", "sink"], ...] = Field(
        default=("zero", "mean", "sink"),
        min_length=1,
        description="list of replacements of the output of each head: zero; mean, over positions and the other "
        "sequences of the study; sink, the value state of position 0",
    )
    sequences: int = Field(
        default=8, ge=1, description="number of sequences of the study used for replacing heads and choosing budgets"
    )
    budgets: tuple[Share, ...] = Field(
        default=(0.02, 0.05, 0.1, 0.2, 0.5),
        max_length=32,
        description="list of budgets of sparse attention, as shares of the context; [] for none",
    )
    held_out: int = Field(
        default=8, ge=1, description="number of sequences of the corpus, not read by the study, used to test budgets"
    )
    draws: int = Field(default=3, ge=1, le=100, description="draws of random heads and random budgets, as controls")
    renormalised: bool = Field(
        default=True, description="whether the weights of the kept keys are rescaled to sum to 1, as in sparse methods"
    )

    @field_validator("ablation", "budgets")
    @classmethod
    def _check_distinct(cls, given: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(given)) < len(given):
            kind, message = "repeated", "input should name every value once"
            raise PydanticCustomError(kind, message)
        return given


MEASURED = ("kappas", "scale")
"""The analysis settings that determine the metrics; the others only affect what is computed from them or shown."""


class AnalysisSettings(BaseModel):
    """How the metrics of a study are computed and shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kappas: Annotated[tuple[float, ...], BeforeValidator(_parse_kappas)] = Field(
        default=(0.5,),
        description="list of the values of κ to compute upper bounds for; the paper leaves κ open, and a variance "
        "proxy c B²/d means κ = 1/(2c)",
    )
    scale: Literal["unit", "raw"] = Field(
        default="unit",
        description="what upper bounds are computed from: unit, weighted norms divided by the median norm of the "
        "head's values, so that their unit does not matter; raw, as printed in the paper",
    )
    monte_carlo: MonteCarloGrid | None = Field(
        default=None, description="grid of simulated heads to test the bounds in expectation; none if omitted"
    )
    temperatures: Annotated[tuple[float, ...], BeforeValidator(_parse_temperatures)] = Field(
        default=(0.25, 0.5, 1.0, 2.0, 4.0),
        description="list of the temperatures T at which selections are measured as well, with weights softmax(l/T) "
        "computed from the stored ones",
    )
    temperature_sequences: int = Field(
        default=4,
        ge=1,
        description="number of sequences, the first ones, used for selections at other temperatures, all if there are "
        "fewer; the sensitivity of weights to their logits is computed for all sequences",
    )
    nulls: Annotated[Nulls, BeforeValidator(_parse_nulls)] = Field(
        default_factory=Nulls,
        description="null models that Precision, Recall, F, specificity and AUC of every head are compared with: "
        "random selections, and shuffled value states; with null or 0 draws, neither AUC nor nulls are computed",
    )
    effects: EffectsSettings | None = Field(
        default=None,
        description="interventions that measure what heads do: replacing each in turn, and attention to fewer keys; "
        "none if omitted",
    )
    map_n: int = Field(default=4, ge=1, description="N at which the layer by head maps show Precision and Recall")

    def select_measured(self) -> dict[str, Any]:
        """The settings that determine the metrics, as JSON."""
        return self.model_dump(mode="json", include=set(MEASURED))


SCHEDULER = re.compile(r"threads|local|(tcp|tls)://([\w.-]+|\[[0-9a-fA-F:.%]+\]):\d{1,5}")
"""Where Dask computes: in threads of the process, in processes on this machine, or on an existing cluster."""


def _check_scheduler(given: object) -> object:
    """Check that a value is None or matches ``SCHEDULER``."""
    if given is not None and not (isinstance(given, str) and SCHEDULER.fullmatch(given)):
        kind = "scheduler"
        message = (
            "input should be threads, local, or the address of a Dask scheduler, tcp://HOST:PORT or tls://HOST:PORT"
        )
        raise PydanticCustomError(kind, message)
    return given


class DaskSettings(BaseModel):
    """Where metrics and fits are computed; this does not change their values."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scheduler: Annotated[str | None, BeforeValidator(_check_scheduler)] = Field(
        default=None,
        description="where metrics and fits are computed: threads; local, one process per core; or the address of an "
        "existing Dask cluster, tcp://HOST:PORT or tls://HOST:PORT; if omitted, the address in DASK_SCHEDULER_ADDRESS, "
        "else threads",
    )


class Study(ExtractionSettings):
    """The settings of one study: what is extracted from which model and text, and how it is analysed."""

    analysis: AnalysisSettings = Field(
        default_factory=AnalysisSettings, description="how the metrics are computed and shown"
    )
    keep_tensors: bool = Field(
        default=True,
        description="whether to keep weights and value states once everything computed from them has landed; if not, "
        "other analysis settings require a new extraction",
    )
    dask: DaskSettings = Field(default_factory=DaskSettings, description="where metrics and fits are computed")
    needs_gpu: bool = Field(
        default=False,
        description="whether to refuse extraction without a GPU, because it would take days on a CPU",
    )
    twin: str | None = Field(
        default=None,
        description="a study with random weights in the same architecture to compare this one with; random creates "
        "one on a few sequences, named NAME-random",
    )

    @field_validator("twin")
    @classmethod
    def _check_twin(cls, twin: str | None, known: ValidationInfo) -> str | None:
        """Check that only a model with trained weights has a twin."""
        model = known.data.get("model")
        if twin is not None and model is not None and (model.id == SYNTHETIC or model.weights == RANDOM):
            kind, message = "twin", "only a model with trained weights can have a twin; omit it"
            raise PydanticCustomError(kind, message)
        return twin

    @field_validator("analysis")
    @classmethod
    def _check_effects(cls, analysis: AnalysisSettings, known: ValidationInfo) -> AnalysisSettings:
        """Check that effects have a model, and as many sequences as they need."""
        asked, model, sequences = analysis.effects, known.data.get("model"), known.data.get("sequences")
        if asked is None or model is None or sequences is None:
            return analysis
        if model.id == SYNTHETIC:
            kind, message = "effects", "a synthetic study has no model whose heads could be changed; omit effects"
            raise PydanticCustomError(kind, message)
        least = max(asked.sequences, 2 if "mean" in asked.ablation else 1)
        if sequences < least:
            kind, message = "effects", "effects need {least} sequences, but the study has {sequences}"
            raise PydanticCustomError(kind, message, {"least": least, "sequences": sequences})
        if too_small := [budget for budget in asked.budgets if budget * known.data.get("context_length", 1) < 1]:
            kind, message = "effects", "the budget {budget} is less than one key of the context"
            raise PydanticCustomError(kind, message, {"budget": too_small[0]})
        return analysis

    def select_extraction(self) -> ExtractionSettings:
        """The settings that determine the tensors."""
        return ExtractionSettings(**self.model_dump(exclude={"analysis", "keep_tensors", "dask", "needs_gpu", "twin"}))


def locate_shipped_file() -> Path:
    """The shipped ``studies.yaml``: next to the packages in a checkout, inside this package when installed."""
    installed = Path(__file__).parents[1] / "studies.yaml"
    return installed if installed.exists() else Path(__file__).parents[2] / "studies.yaml"


def list_studies(home: Home) -> dict[str, Study]:
    """All studies by name: those shipped and those recorded in the data root.

    Raises
    ------
    UserError
        If a file has an error, or both define the same name.
    """
    shipped, own = _read_entries(locate_shipped_file()), _read_entries(home.studies_file)
    return {name: _resolve_study(home, name, shipped, own) for name in _list_names(shipped, own)}


def _list_names(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """The names of the studies of two files and of their generated twins, each once."""
    return list(dict.fromkeys([*iterate_with_twins(shipped), *iterate_with_twins(own)]))


def list_readable_studies(home: Home) -> tuple[dict[str, Study], dict[str, UserError]]:
    """As ``list_studies``, but an error in one study or file does not hide the others.

    Returns
    -------
    tuple
        The studies that can be read, by name; the errors of the others, by name, or of a file, by its path.
    """
    shipped = _read_entries(locate_shipped_file())
    errors: dict[str, UserError] = {}
    try:
        own = _read_entries(home.studies_file)
    except UserError as error:
        own, errors = {}, {str(home.studies_file): error}
    found = {}
    for name in _list_names(shipped, own):
        try:
            found[name] = _resolve_study(home, name, shipped, own)
        except UserError as error:
            errors[str(name)] = error
    return found, errors


def _resolve_study(home: Home, name: str, shipped: Mapping[str, Any], own: Mapping[str, Any]) -> Study:
    """One study of the two files, or the generated twin of one."""
    if name in shipped and name in own:
        msg = f"{home.studies_file}: study '{name}' is already shipped with the product; give it another name"
        raise UserError(msg)
    if owner := find_owner(name, {**own, **shipped}):
        if name in shipped or name in own:
            msg = (
                f"{home.studies_file}: study '{name}' has the name of the twin that study '{owner}' requests; give it "
                f"another name, or set twin: {name} in '{owner}'"
            )
            raise UserError(msg)
        return make_random_twin(_resolve_study(home, owner, shipped, own))
    path, settings = (locate_shipped_file(), shipped[name]) if name in shipped else (home.studies_file, own[name])
    return parse_study(name, _anchor_paths(settings, path.parent), path)


def find_study(home: Home, name: str) -> Study:
    """The study called ``name``; errors in other studies are ignored.

    Raises
    ------
    UserError
        If there is none; the message suggests the closest name.
    """
    shipped, own = _read_entries(locate_shipped_file()), _read_entries(home.studies_file)
    if name in _list_names(shipped, own):
        return _resolve_study(home, name, shipped, own)
    studies = list_studies(home)
    close = difflib.get_close_matches(name, studies, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(studies)};"
    msg = f"There is no study '{name}'; {hint} `attention-geometry studies` lists them"
    raise UserError(msg)


def check_twin(home: Home, name: str, study: Study) -> None:
    """Refuse a twin that cannot be compared with the study.

    Raises
    ------
    UserError
        If the twin does not exist, its weights are not random, or its model is another.
    """
    twin = find_twin_name(name, study)
    if twin is None:
        return
    found = find_study(home, twin)
    if found.model.weights != RANDOM:
        msg = (
            f"The study '{twin}' cannot be the twin of '{name}', because its weights are trained; set twin: {RANDOM}, "
            f"or give '{twin}' random weights"
        )
        raise UserError(msg)
    if (found.model.name, found.model.revision) != (study.model.name, study.model.revision):
        msg = (
            f"The study '{twin}' cannot be the twin of '{name}': its model is {found.model.name}, not "
            f"{study.model.name}; "
            f"set twin: {RANDOM}"
        )
        raise UserError(msg)


def read_studies(path: Path) -> dict[str, Study]:
    """Read the studies of one file, with their generated twins; none if the file does not exist.

    Raises
    ------
    UserError
        If the file is not valid YAML or a study in it is malformed.
    """
    entries = _read_entries(path)
    studies = {
        name: parse_study(name, _anchor_paths(settings, path.parent), path) for name, settings in entries.items()
    }
    twins = ((name, find_owner(name, entries)) for name in iterate_with_twins(entries))
    return studies | {name: make_random_twin(studies[owner]) for name, owner in twins if owner and name not in studies}


def _read_entries(path: Path) -> dict[str, Any]:
    """Read the settings of each study of a file, unchecked; none if the file does not exist."""
    if not path.exists():
        return {}
    try:
        content = parse_yaml(read_regular_file(path, LARGEST).decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        msg = f"{path} is not valid YAML: {error}"
        raise QuotingError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}); put a file of studies there, or remove it"
        raise UserError(msg) from error
    if not isinstance(content, dict) or set(content) != {"studies"} or not isinstance(content["studies"], dict):
        msg = f"{path} must contain one mapping 'studies' from names to settings; see the shipped studies.yaml"
        raise UserError(msg)
    return dict(content["studies"])


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

    Raises
    ------
    UserError
        If the name is not a safe file name, or a field is unknown, missing or malformed.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name) or UNFINISHED.search(name):
        msg = (
            f"{source}: '{name}' cannot be the name of a study; use up to 64 lower-case letters, digits, '.', '_' and "
            "'-', beginning and ending with a letter or digit"
        )
        raise UserError(msg)
    try:
        return Study.model_validate(settings)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")  # it explains more
        missing = [".".join(map(str, problem["loc"])) for problem in problems if problem["type"] == "missing"]
        if len(missing) == len(problems) > 1:
            options = [f"--{field.removesuffix('.id').replace('_', '-')}" for field in missing]
            what = options if source == COMMAND_LINE else missing
            msg = f"{source}: study '{name}' lacks {', '.join(what[:-1])} and {what[-1]}; add them"
            raise UserError(msg) from error
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        msg = f"{source}: study '{name}', {_explain_problem(problems[0])}{more}"
        raise UserError(msg) from error


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
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        found[prefix + name] = field.description or ""
        for part in (field.annotation, *get_args(field.annotation)):  # an optional part is a union
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= _describe_fields(part, f"{prefix}{name}.")
    return found


@contextmanager
def record_tentatively(home: Home, name: str, settings: Mapping[str, Any]) -> Iterator[None]:
    """Record a study to run inside the context; if it is refused before anything is stored, remove the new record.

    So a mistake in the settings can be fixed under the same name.

    Raises
    ------
    UserError
        As ``record_study``.
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

    Raises
    ------
    UserError
        If the settings are malformed, or another study has the name.
    """
    study = parse_study(name, dict(settings), COMMAND_LINE)
    home.prepare()
    with hold_lock(home.root / "studies.lock", str(home.studies_file), wait=10):
        existing = list_studies(home).get(name)
        if existing is None:
            _append(home.studies_file, name, settings)
        elif existing != study:
            msg = (
                f"There is already a study '{name}' with other settings; choose another --name, "
                f"or run that one: attention-geometry run {name}"
            )
            raise UserError(msg)
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
        msg = f"The study '{name}' could not be added to {path}; add it by hand below '{HEADING}'"
        raise UserError(msg) from error


def _format_block(name: str, settings: Mapping[str, Any]) -> str:
    """The lines of one study in a studies file."""
    block = yaml.safe_dump({name: dict(settings)}, sort_keys=False, allow_unicode=True)
    return "".join(f"  {line}\n" for line in block.splitlines())


def _replace(path: Path, text: str) -> None:
    """Replace the text of a studies file, if the new text can be read as one."""
    with stage_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
        read_studies(partial)
