"""The settings of a study: what is extracted from which model and text, and how it is analysed; and its controls.

Holds ``Study`` and its parts, with the checks that need no file; the files that define studies are in
``dagster_project.study.studies``. Controls are the twin, with random weights in the same architecture, and the probe of
repeated tokens. A study names its twin, or requests one with ``twin: random``, which is then the study ``NAME-random``.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo, field_validator

from extract.settings import REPEATED, SYNTHETIC, ExtractionSettings, Settings, Whole, refuse
from reports.findings.numbers import count
from storage.errors import UserError

RANDOM = "random"
"""The value of ``twin`` by which a study requests a generated twin, and of ``weights`` for random ones."""

KAPPAS = 16
"""Most values of κ in a study: each has its own row for every selection."""

TEMPERATURES, COLDEST, HOTTEST = 16, 1 / 64, 64.0
"""Most temperatures in a study, and their range: outside it all weight is on one key, or spread over all."""


def _sort_distinct(given: tuple[float, ...]) -> tuple[float, ...]:
    """Check that a list of numbers names every number once, and sort it."""
    return tuple(sorted(_check_distinct(given)))


def _check_distinct(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Check that a list names no value twice."""
    if len(set(given)) < len(given):
        refuse("input should name every value once")
    return given


Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
"""A number; ``true`` is none."""

Kappas = Annotated[tuple[Positive, ...], Field(min_length=1, max_length=KAPPAS), AfterValidator(_sort_distinct)]
"""Values of κ in ascending order."""

Temperature = Annotated[Positive, Field(ge=COLDEST, le=HOTTEST)]
Temperatures = Annotated[
    tuple[Temperature, ...], Field(min_length=1, max_length=TEMPERATURES), AfterValidator(_sort_distinct)
]
"""Temperatures in ascending order."""

Sizes = Annotated[tuple[Annotated[Whole, Field(ge=2, le=2**16)], ...], Field(min_length=1, max_length=16)]
"""Sizes of simulated heads."""


class MonteCarloGrid(Settings):
    """Heads to draw from the paper's assumptions, to test its bounds on: every combination is one grid point.

    Other parameters (C, and the phases of the weights) are those fitted to the study.
    """

    head_dim: Sizes = Field(default=(16, 64, 128), description="lengths d of one value state")
    n_keys: Sizes = Field(default=(64, 256), description="numbers of keys, including the sink")
    n: tuple[Annotated[Whole, Field(ge=1)], ...] = Field(
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
    draws: Whole = Field(default=100, ge=2, le=10_000, description="heads drawn at each grid point")

    _distinct = field_validator("head_dim", "n_keys", "n", "beta", "lambda_sink", "rho_0")(_check_distinct)

    @field_validator("n")
    @classmethod
    def _check_n(cls, n: tuple[int, ...], known: ValidationInfo) -> tuple[int, ...]:
        if (least := min(known.data.get("n_keys", (2**16 + 1,)))) <= min(n):
            refuse("at least one N should be below {least}, the smallest n_keys", least=least)
        return n


class Nulls(Settings):
    """How much of a study is compared with chance."""

    sequences: Whole = Field(
        default=24, ge=1, description="number of sequences that are compared, the first ones; all if there are fewer"
    )
    draws: Whole = Field(
        default=4, ge=0, le=1000, description="draws of each null for every sequence, query and head; 0 for no nulls"
    )


Share = Annotated[float, Field(gt=0, le=1)]


class EffectsSettings(Settings):
    """Interventions on the heads of the study's model, which measure what the heads contribute."""

    ablation: tuple[Literal["zero", "mean", "sink", "selected"], ...] = Field(
        default=("zero", "mean", "sink", "selected"),
        description="list of replacements of the output of each head: zero; mean, over positions and the other "
        "sequences of the study; sink, the value state of position 0; selected, the output over 16 keys; [] for none",
    )
    sequences: Whole = Field(
        default=8, ge=1, description="number of sequences of the study used for replacing heads and choosing budgets"
    )
    budgets: tuple[Share, ...] = Field(
        default=(0.02, 0.05, 0.1, 0.2, 0.5),
        max_length=32,
        description="list of budgets of sparse attention, as shares of the context; [] for none",
    )
    policies: tuple[str, ...] = Field(
        default=(),
        description="list of the policies of sparse attention to measure beside same_n, by the names that table "
        "sparsified_loss has; [] for all",
    )
    held_out: Whole = Field(
        default=8, ge=1, description="number of sequences of the corpus, not read by the study, used to test budgets"
    )
    draws: Whole = Field(default=3, ge=1, le=100, description="draws of random heads and random budgets, as controls")

    _distinct = field_validator("ablation", "budgets", "policies")(_check_distinct)


MEASURED = ("kappas", "scale")
"""The analysis settings that determine the metrics; the others only affect what is computed from them or shown."""


class AnalysisSettings(Settings):
    """How the metrics of a study are computed and shown."""

    kappas: Kappas = Field(
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
    temperatures: Temperatures = Field(
        default=(0.25, 0.5, 1.0, 2.0, 4.0),
        description="list of the temperatures T at which selections are measured as well, with weights softmax(l/T) "
        "computed from the stored ones",
    )
    temperature_sequences: Whole = Field(
        default=4,
        ge=1,
        description="number of sequences, the first ones, used for selections at other temperatures, all if there are "
        "fewer; the sensitivity of weights to their logits is computed for all sequences",
    )
    nulls: Annotated[Nulls, BeforeValidator(lambda given: {"draws": 0} if given is None else given)] = Field(
        default_factory=Nulls,
        description="null models that Precision, Recall, F, specificity and AUC of every head are compared with: "
        "random selections, and shuffled value states; with null or 0 draws, neither AUC nor nulls are computed",
    )
    effects: EffectsSettings | None = Field(
        default=None,
        description="interventions that measure what heads do: replacing each in turn, and attention to fewer keys; "
        "none if omitted",
    )
    map_n: Whole = Field(default=4, ge=1, description="N at which the layer by head maps show Precision and Recall")

    def select_measured(self) -> dict[str, Any]:
        """The settings that determine the metrics, as JSON."""
        return self.model_dump(mode="json", include=set(MEASURED))


SCHEDULER = re.compile(r"threads|(tcp|tls)://([\w.-]+|\[[0-9a-fA-F:.%]+\]):\d{1,5}")
"""Where Dask computes: on this machine, or on an existing cluster."""


def _check_scheduler(given: object) -> object:
    """Check that a value is None or matches ``SCHEDULER``."""
    if given is not None and not (isinstance(given, str) and SCHEDULER.fullmatch(given)):
        refuse("input should be threads, or the address of a Dask scheduler, tcp://HOST:PORT or tls://HOST:PORT")
    return given


class DaskSettings(Settings):
    """Where metrics and fits are computed; this does not change their values."""

    scheduler: Annotated[str | None, BeforeValidator(_check_scheduler)] = Field(
        default=None,
        description="where metrics and fits are computed: threads, of this machine; or the address of an "
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
            refuse("only a model with trained weights can have a twin; omit it")
        return twin

    @field_validator("analysis")
    @classmethod
    def _check_effects(cls, analysis: AnalysisSettings, known: ValidationInfo) -> AnalysisSettings:
        """Check that effects have a model, and as many sequences as they need."""
        effects, model, sequences = analysis.effects, known.data.get("model"), known.data.get("sequences")
        if effects is None or model is None or sequences is None:
            return analysis
        if model.id == SYNTHETIC:
            refuse("a synthetic study has no model whose heads could be changed; omit effects")
        least = max(effects.sequences, 2 if "mean" in effects.ablation else 1)
        if sequences < least:
            refuse("effects need {least} sequences, but the study has {sequences}", least=least, sequences=sequences)
        if too_small := [budget for budget in effects.budgets if budget * known.data.get("context_length", 1) < 1]:
            refuse("the budget {budget} is less than one key of the context", budget=too_small[0])
        return analysis

    @field_validator("analysis")
    @classmethod
    def _check_map(cls, analysis: AnalysisSettings, known: ValidationInfo) -> AnalysisSettings:
        """Check that the context has the N of the maps; the default is lowered on the page of a shorter one."""
        last = max(known.data.get("queries") or (known.data.get("context_length", inf) - 1,))
        if analysis.map_n > max(last, AnalysisSettings.model_fields["map_n"].default):
            refuse("map_n {map_n} is more than the largest N of the context, {last}", map_n=analysis.map_n, last=last)
        return analysis

    def select_extraction(self) -> ExtractionSettings:
        """The settings that determine the tensors."""
        return ExtractionSettings(**self.model_dump(exclude={"analysis", "keep_tensors", "dask", "needs_gpu", "twin"}))


# --- controls ---

SEQUENCES = 8
"""Most sequences of a generated twin; it measures the last query alone, at one temperature, and has no probe, in which
random weights copy nothing, so that it costs little."""

EVERY_QUERY_KEYS = 1024
"""Longest context of which a new study measures every query unless asked not to: the work grows as its cube."""

SUFFIX = "-random"


def find_twin_name(name: str, study: Study) -> str | None:
    """The name of a study's twin; None if it has none."""
    return f"{name}{SUFFIX}" if study.twin == RANDOM else study.twin


def make_random_twin(study: Study) -> Study:
    """The generated twin of a study: the same but for its weights, on few sequences and one query, without a probe."""
    given = study.model_dump(exclude={"twin", "queries", "probe", "every_query"})
    last = study.query_positions[-1]
    effects = given["analysis"]["effects"]
    if effects is not None:
        effects = effects | {"sequences": min(effects["sequences"], SEQUENCES)}
    changed = {
        "model": given["model"] | {"weights": "random", "quantised": None},
        "sequences": min(study.sequences, SEQUENCES),
        "queries": None if last == study.context_length - 1 else (last,),
        "analysis": given["analysis"] | {"monte_carlo": None, "temperatures": (1.0,), "effects": effects},
    }
    return type(study).model_validate(given | changed)


def iterate_with_twins(entries: Mapping[str, Any]) -> Iterator[str]:
    """The names of the studies of a file, each followed by that of its generated twin, if it requests one."""
    for name, settings in entries.items():
        yield name
        if isinstance(settings, dict) and settings.get("twin") == RANDOM:
            yield f"{name}{SUFFIX}"


def find_owner(name: object, entries: Mapping[str, Any]) -> str | None:
    """The study of a file whose generated twin has this name; None if there is none."""
    owner = str(name).removesuffix(SUFFIX)
    settings = entries.get(owner)
    asks = isinstance(settings, dict) and settings.get("twin") == RANDOM
    return owner if asks and owner != name else None


def choose_controls(
    twin: str | None, *, no_twin: bool, no_probe: bool, every_query: bool | None, default: bool, keys: int | None
) -> dict[str, str | bool | None]:
    """The settings of twin, probe and every query, as they were given; if they were not, by ``default`` or none.

    keys: tokens of a sequence; of more than ``EVERY_QUERY_KEYS`` every query is measured only where it is asked for.
    ``UserError`` if a twin is named and left out.
    """
    if twin is not None and no_twin:
        raise UserError(f"--twin {twin} and --no-twin exclude each other; leave one of them out")
    chosen: dict[str, str | bool | None] = {}
    if default:
        chosen = {"twin": RANDOM, "probe": REPEATED, "every_query": keys is not None and keys <= EVERY_QUERY_KEYS}
    chosen |= {name: given for name, given in (("twin", twin), ("every_query", every_query)) if given is not None}
    return chosen | {control: None for control, absent in (("twin", no_twin), ("probe", no_probe)) if absent}


def describe_controls(name: str, study: Study) -> str | None:
    """What twin and probe of a study cost, in forward passes of one sequence; None if it has neither."""
    own = study.sequences
    parts = {
        "of repeated tokens (the probe)": own if study.probe else 0,
        f"with random weights (the twin, {name}{SUFFIX})": min(own, SEQUENCES) if study.twin == RANDOM else 0,
    }
    if not any(parts.values()):
        return None
    told = " and ".join(f"{passes:,} {what}" for what, passes in parts.items() if passes)
    ratio = (own + sum(parts.values())) / own
    return f"{count(own, 'sequence')}, and {told}: {ratio:.3g} times as many forward passes"
