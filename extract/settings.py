"""Settings of an extraction: model, text, length and number of sequences, and device."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, pi
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from extract.hub import is_local_id
from storage.errors import UserError
from storage.files.differences import find_differences

EMBEDDED = "embedded"
"""The name of the model that is shipped with the package, and of the text of Python's manual."""

TRAINING = "training"
"""The name of the checkpoints of one training run that are shipped with the package; a revision names one of them."""

PROSE = "prose"
"""The name of the corpus of English prose that is shipped with the package."""

REPEATED = "repeated"
"""The name of the corpus of random tokens, the first half of each sequence repeated as the second."""

BUILT_IN = {
    EMBEDDED: "the manual of Python",
    PROSE: "English prose",
    REPEATED: "repeated random tokens",
}
"""What the built-in corpora are, by name."""

PACKAGE = "package:"
"""Beginning of the id of a model that is a file of an installed distribution."""

GGUF = ".gguf"
"""Suffix of a model that is one file."""

SYNTHETIC = "synthetic"
"""The name of the model, and of its corpus, of a study whose tensors are drawn from the paper's assumptions."""

TEXT_BYTES = 2**20
"""Most bytes of one text in memory: its tokens take some 160 bytes a character while it is read."""

MAIN = "main"
"""The branch of the hub that is read unless another revision is given."""

EXTRACTION_VERSION = 5
"""Version of the numbers in a tensor store; raised when their computation changes, so that stores are rebuilt."""

MOST_QUERIES = 64
"""Largest number of queries of a study: each has its own weights in the store."""

MOST_GROWTH = 60
"""Largest growth of the weights over the last phase, as an exponent: e⁶⁰, of the 10³⁸ that float32 spans."""


Bos = Literal["auto", "always", "never"]
"""What every sequence begins with: ``extract.texts.tokenization.find_start``."""

Whole = Annotated[int, Strict()]
"""A whole number; ``true`` is none."""


def _declare_later(default: Any, description: str, **rules: Any) -> Any:
    """A field without which studies were once stored: left out of their settings while it has its default."""
    return Field(default, exclude_if=lambda given: given == default, description=description, **rules)


class Settings(BaseModel):
    """Settings that refuse unknown fields and cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(Settings):
    """A causal language model: shipped, a directory, a GGUF file, or a hub id with its revision; or ``synthetic``.

    Shipped are ``embedded``, and ``training`` with the step of one of its checkpoints as revision.

    A GGUF file is a path, a file of a directory or of a hub repository (``gguf``), or a file of an installed
    distribution (``package:DISTRIBUTION/FILE``).
    """

    id: str = Field(
        min_length=1,
        description="`embedded`, `training` (with a revision such as step512), a local directory, a GGUF file, "
        "`package:DISTRIBUTION/FILE` (a GGUF file that an installed distribution ships; `DISTRIBUTION==VERSION` "
        "demands a version), a Hugging Face hub id, or `synthetic`",
    )
    gguf: str | None = _declare_later(None, "GGUF file of the directory or hub id from which everything is read")
    revision: str = Field(MAIN, min_length=1, description="branch, tag or commit of the hub id, or step of `training`")
    weights: Literal["trained", "random"] = _declare_later(
        "trained",
        "`trained`: those of the checkpoint; `random`: drawn by the architecture's own initialisation, as an untrained "
        "control",
    )
    weights_seed: Whole | None = _declare_later(None, "seed of the random weights; default: the study's seed", ge=0)
    quantised: Literal["Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"] | None = _declare_later(
        None, "round the trained weights to this type of GGUF, as if they were read from such a file"
    )

    @property
    def name(self) -> str:
        """The model as shown to people: its id, and the file if one is named."""
        return self.id if self.gguf is None else f"{self.id}/{self.gguf}"

    @property
    def is_file(self) -> bool:
        """Whether the id itself names a GGUF file, by its form."""
        return self.gguf is None and _names_file(self.id)

    @field_validator("gguf")
    @classmethod
    def _check_gguf(cls, name: str | None, known: ValidationInfo) -> str | None:
        if name is None:
            return None
        identity = str(known.data.get("id", ""))
        if identity in {EMBEDDED, TRAINING, SYNTHETIC} or _names_file(identity):
            refuse("input is only allowed with a directory or a hub id; leave it out")
        path = PurePosixPath(name)
        outside = path.is_absolute() or ".." in path.parts
        if outside or not name.lower().endswith(GGUF) or not name.isprintable() or "\\" in name:
            refuse("input should be the name of a .gguf file inside the directory or repository")
        return path.as_posix()

    @field_validator("weights", "weights_seed", "quantised")
    @classmethod
    def _check_weights(cls, given: Any, known: ValidationInfo) -> Any:
        if given in (None, "trained"):
            return given
        synthetic, random = known.data.get("id") == SYNTHETIC, known.data.get("weights", "random") == "random"
        if known.field_name == "weights" and synthetic:
            refuse("a synthetic study has no model and no weights; leave it out")
        if known.field_name == "weights_seed" and not random:
            refuse("input is only allowed with `weights: random`")
        if known.field_name == "quantised" and (synthetic or known.data.get("weights") == "random"):
            refuse("input is only allowed with trained weights; leave it out")
        return given

    @field_validator("revision")
    @classmethod
    def _check_revision(cls, revision: str, known: ValidationInfo) -> str:
        name = known.data.get("id")
        local = name in {EMBEDDED, SYNTHETIC} or (known.data.get("gguf") is None and _names_file(str(name)))
        if revision != MAIN and name and name != TRAINING and (local or is_local_id(name)):
            refuse("input is only allowed with a hub id, but the model '{name}' is local; leave it out", name=name)
        return revision


class CorpusSettings(Settings):
    """A corpus: one that is built in (``BUILT_IN``), a local file or directory, or a hub dataset."""

    id: str = Field(
        min_length=1,
        description="`embedded` (the manual of Python), `prose` (English prose), `repeated` (random tokens, half a "
        "sequence, twice), a .txt/.jsonl/.parquet file (.txt and .jsonl also as .gz/.bz2/.zst), a directory of "
        "such files, or a hub dataset id, which is streamed",
    )
    revision: str | None = Field(None, min_length=1, description="branch, tag or commit of the hub dataset")
    subset: str | None = Field(None, description="configuration of the hub dataset")
    split: str = Field("train", min_length=1, description="split of the hub dataset")
    column: str = Field("text", min_length=1, description="column or field that holds the text")
    pack: bool = Field(False, description="join documents end to end instead of skipping those that are too short")

    @property
    def name(self) -> str:
        """The corpus as shown to people: what a built-in one is; any other by its id."""
        return BUILT_IN.get(self.id, self.id)


def _expand_id(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Magnitude = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, lt=1)]
Cosine = Annotated[float, Field(gt=-1, lt=1)]
Rate = Annotated[float, Field(allow_inf_nan=False)]
Frequency = Annotated[float, Field(gt=0, le=pi)]


class SyntheticSettings(Settings):
    """Parameters of the tensors of a synthetic study: sizes, and the range of each parameter over the heads.

    Ranges are [first, last]; ``extract.synthetic`` describes how heads are distributed over them.
    """

    layers: Whole = Field(4, ge=1, description="attention layers")
    heads: Whole = Field(8, ge=1, description="query heads in each layer")
    kv_heads: Whole = Field(4, ge=1, validate_default=True, description="KV heads in each layer, a divisor of heads")
    head_dim: Whole = Field(64, ge=2, description="length d of one value state")
    value_scale: tuple[Positive, Positive] = Field((0.5, 4.0), description="C, norm of all value states but the sink's")
    lambda_sink: tuple[Magnitude, Magnitude] = Field((0.1, 0.5), description="λ, norm of the sink's value state over C")
    beta: tuple[Positive, Positive] = Field((0.02, 0.3), description="β, decay of the cosine with distance")
    rho_0: tuple[Cosine, Cosine] = Field((0.0, 0.3), description="ρ_0, cosine of the sink with every other key")
    p_sink: tuple[Share, Share] = Field((0.2, 0.6), description="weight of the sink")
    eta: tuple[Cosine, Cosine] = Field((0.2, 0.6), description="η of the oscillation")
    eta_growth: tuple[Rate, Rate] | None = Field(
        (0.01, 0.04), description="η of the growth, per position; null: that of the oscillation, as the paper prints it"
    )
    omega: tuple[Frequency, Frequency] = Field((0.1, 0.5), description="ω, in radians per position")
    t_1: tuple[Share, Share] = Field((0.1, 0.2), description="T_1, as a share of the query's keys")
    t_2: tuple[Share, Share] = Field(
        (0.6, 0.8), validate_default=True, description="T_2, as a share of the query's keys"
    )
    noise: float = Field(0.1, ge=0, le=1, description="σ of the lognormal factor on every weight of every sequence")

    @field_validator("kv_heads")
    @classmethod
    def _check_kv_heads(cls, kv_heads: int, known: ValidationInfo) -> int:
        if (heads := known.data.get("heads", kv_heads)) % kv_heads:
            refuse("input should divide the {heads} heads", heads=heads)
        return kv_heads

    @field_validator("t_2")
    @classmethod
    def _check_t_2(cls, t_2: tuple[float, float], known: ValidationInfo) -> tuple[float, float]:
        if min(t_2) < max(known.data.get("t_1", (0,))):
            refuse("input should not begin below t_1, whose range ends at {t_1}", t_1=max(known.data["t_1"]))
        return t_2


_IN_FLOAT32, _OF_CHOSEN = "is drawn in float32 on the CPU", "has only the weights of the chosen queries"
NOT_DRAWN: dict[str, tuple[tuple[object, ...], str]] = {
    "bos": (("auto",), "reads no text"),
    "dtype": (("float32",), _IN_FLOAT32),
    "device": (("auto", "cpu"), _IN_FLOAT32),
    "device_map": ((None,), _IN_FLOAT32),
    "sink_measure": ((False,), _OF_CHOSEN),
    "every_query": ((False,), _OF_CHOSEN),
    "probe": ((None,), "has no model that could read it"),
}
"""What a study whose tensors are drawn may say of these fields, and why nothing else."""


class ExtractionSettings(Settings):
    """All settings that determine the extracted tensors."""

    model: Annotated[ModelSettings, BeforeValidator(_expand_id)]
    corpus: Annotated[CorpusSettings, BeforeValidator(_expand_id)] = Field(None, validate_default=True)
    context_length: Whole = Field(ge=2, description="tokens in each sequence")
    sequences: Whole = Field(
        24, ge=1, description="number of sequences, the sample of every interval; a default that decides most claims"
    )
    queries: tuple[int, ...] | None = Field(
        None,
        description="positions of the queries whose weights are kept, in any order, such as [63, 127, 255]; the one at "
        "position q has q + 1 keys, so several queries compare sizes of context; default: only the last position",
    )
    seed: Whole = Field(0, ge=0, description="seed of the choice of sequences from the corpus")
    bos: Bos = _declare_later(
        "auto",
        "what every sequence begins with: `auto`, what the model's tokenizer puts before a text; `always`, "
        "BOS; `never`, nothing",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="of the model's weights")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N")
    device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | None = Field(
        None,
        description="spread the model's layers over all GPUs, as accelerate's device_map does; default: one device",
    )
    batch_size: int | Literal["auto"] = Field(
        "auto",
        description="most sequences per forward pass, or auto: as many as fit in 1 GiB of captured tensors, up to 16, "
        "on a CPU up to 2,048 tokens; if memory runs out, the number is halved",
    )
    values: Literal["float32", "float16"] = Field(
        "float32", description="type in which value states are stored; float16 rounds them and needs half the space"
    )
    sink_measure: bool = _declare_later(
        False,
        "also keep the mean weight that each key receives from later queries, which needs the weights of "
        "all queries and so about doubles the time of the attention",
    )
    every_query: bool = _declare_later(
        False,
        "also measure what every position selects as the query: of n tokens, each head of size d "
        "takes some d n² log₂ n multiply-adds more",
    )
    probe: Literal["repeated"] | None = _declare_later(
        None,
        "repeated: also measure what heads look at in as many sequences of random tokens, half a sequence, "
        "twice, the standard probe for heads that find earlier copies; takes one more forward pass",
    )
    synthetic: SyntheticSettings | None = Field(
        None, validate_default=True, description="parameters of the tensors of the model `synthetic`"
    )

    @field_validator("corpus", mode="before")
    @classmethod
    def _check_corpus(cls, given: Any, known: ValidationInfo) -> Any:
        if not _is_synthetic(known):
            if given is None:
                kind: Literal["missing"] = "missing"
                raise PydanticKnownError(kind)
            if SYNTHETIC in (given, given.get("id") if isinstance(given, dict) else None):
                refuse("input is only allowed with `model: {name}`", name=SYNTHETIC)
            return given
        own = CorpusSettings.model_validate({"id": SYNTHETIC})
        if given not in (None, SYNTHETIC, own, own.model_dump()):
            refuse("a synthetic study reads no text; leave it out")
        return own

    @field_validator("queries", mode="before")
    @classmethod
    def _parse_queries(cls, given: Any, known: ValidationInfo) -> tuple[int, ...] | None:
        """Positions of the queries, ascending; a single one may be given without a list."""
        if given is None:
            return None
        queries = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not all(type(query) is int for query in queries):
            refuse("input should be a position or a list of positions, whole numbers from 1")
        if not 1 <= len(queries) <= MOST_QUERIES:
            refuse("input should name 1 to {most} positions, not {count}", most=MOST_QUERIES, count=len(queries))
        if len(set(queries)) < len(queries):
            refuse("input should name every position only once")
        if min(queries) < 1:
            refuse("positions should be 1 or more: the query at 0 has only one key")
        if (end := known.data.get("context_length", inf)) <= max(queries):
            refuse("positions should be below context_length, which is {end}", end=end)
        return tuple(sorted(queries))

    @field_validator(*NOT_DRAWN)
    @classmethod
    def _check_drawn(cls, given: Any, known: ValidationInfo) -> Any:
        allowed, why = NOT_DRAWN[str(known.field_name)]
        if _is_synthetic(known) and given not in allowed:
            refuse(f"a synthetic study {why}; leave it out")
        spread = known.field_name == "device_map" and given is not None
        if spread and known.data.get("device", "auto") not in {"auto", "cuda"}:
            refuse("input is only allowed with `device: auto` or `device: cuda`")
        return given

    @field_validator("batch_size", mode="before")
    @classmethod
    def _check_batch_size(cls, given: Any) -> Any:
        if given != "auto" and (type(given) is not int or given < 1):
            refuse("input should be auto or a whole number from 1")
        return given

    @field_validator("synthetic", mode="before")
    @classmethod
    def _check_synthetic(cls, given: Any, known: ValidationInfo) -> Any:
        if _is_synthetic(known):
            return {} if given is None else given
        if given is not None and "model" in known.data:
            refuse("input is only allowed with `model: {name}`", name=SYNTHETIC)
        return given

    @field_validator("synthetic")
    @classmethod
    def _check_growth(cls, drawn: SyntheticSettings | None, known: ValidationInfo) -> SyntheticSettings | None:
        """Refuse a growth that would make weights of the last query, which has the most keys, underflow in float32."""
        keys = 1 + max(known.data.get("queries") or (known.data.get("context_length", 0) - 1,))
        growth = max(drawn.eta_growth or drawn.eta) * (1 - min(drawn.t_2)) * keys if drawn else 0
        if growth > MOST_GROWTH:
            message = "weights should grow by e^{most} at most from t_2 to the last query, not by e^{growth}"
            refuse(message, most=MOST_GROWTH, growth=round(growth))
        return drawn

    @property
    def stored(self) -> dict[str, Any]:
        """The arguments of ``storage.zarr.arrays.build_tensor_specs``."""
        of_arrays = {"sink_measure": self.sink_measure, "every_query": self.every_query}
        return {"values": self.values, "computed": self.dtype, "probe": self.probe is not None, **of_arrays}

    @property
    def weights_seed(self) -> int | None:
        """Seed of the model's random weights; None if they are the checkpoint's."""
        if self.model.weights == "trained":
            return None
        return self.seed if self.model.weights_seed is None else self.model.weights_seed

    @property
    def query_positions(self) -> tuple[int, ...]:
        """Positions of the queries, ascending: those given, or the last of the context."""
        return self.queries or (self.context_length - 1,)


@dataclass(frozen=True)
class Shard:
    """The ``index``-th of ``count`` parts of a study's sequences, counted from 1; each process extracts one."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise UserError(f"There is no shard {self.index} of {self.count}; give K/N with K from 1 to N, such as 2/4")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that ``K/N`` names."""
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
        if match is None:
            raise UserError(f"'{text}' is not a shard; give K/N, the K-th of N parts counted from 1, such as 2/4")
        return cls(int(match[1]), int(match[2]))

    def select_sequences(self, total: int) -> range:
        """The consecutive sequences of this part, of ``total``; may be empty if there are more parts than sequences."""
        return range(total * (self.index - 1) // self.count, total * self.index // self.count)


def describe_changes(now: Mapping[str, Any], was: Mapping[str, Any]) -> Iterator[str]:
    """Describe each setting in which ``now`` differs from ``was``, both as JSON."""
    for name, before, after in find_differences(was, now):
        yield f"setting '{name}' is {after!r}, was {before!r}"


def _names_file(identity: str) -> bool:
    """Whether an id has the form of a GGUF file: a path with its suffix, or a file of an installed distribution."""
    return identity.startswith(PACKAGE) or identity.lower().endswith(GGUF)


def _is_synthetic(known: ValidationInfo) -> bool:
    model = known.data.get("model")
    return model is not None and model.id == SYNTHETIC


def refuse(message: Any, **numbers: Any) -> NoReturn:
    """Raise the error of a field that is wrong, by itself or beside the others."""
    kind = "refused"
    raise PydanticCustomError(kind, message, numbers)
