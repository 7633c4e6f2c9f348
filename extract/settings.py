"""Settings of an extraction: which model reads which text, how long, how many, on what.

Holds the pydantic models that ``studies.yaml`` is validated with, as far as extraction is concerned. What does not
belong here: analysis settings and the file itself (``dagster_project.studies``).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

EMBEDDED = "embedded"
"""The name of the model and of the corpus that are shipped with the package."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Settings):
    """A causal language model: ``embedded``, a local directory, or a hub id with its revision."""

    id: str = Field(min_length=1, description="`embedded`, a local directory, or a Hugging Face hub id")
    revision: str = Field("main", min_length=1, description="branch, tag or commit of the hub id")


class CorpusSettings(_Settings):
    """A corpus: ``embedded``, a local file, or a hub dataset."""

    id: str = Field(min_length=1, description="`embedded`, a .txt/.jsonl/.parquet file, or a hub dataset id")
    revision: str | None = Field(None, min_length=1, description="branch, tag or commit of the hub dataset")
    subset: str | None = Field(None, description="configuration of the hub dataset")
    split: str = Field("train", min_length=1, description="split of the hub dataset")
    column: str = Field("text", min_length=1, description="column or field that holds the text")
    pack: bool = Field(False, description="join documents end to end instead of skipping those that are too short")


def _from_id(value: Any) -> Any:
    """A plain string stands for the settings with that id."""
    return {"id": value} if isinstance(value, str) else value


class ExtractionSettings(_Settings):
    """Everything that decides the extracted tensors."""

    model: Annotated[ModelSettings, BeforeValidator(_from_id)]
    corpus: Annotated[CorpusSettings, BeforeValidator(_from_id)]
    context_length: int = Field(ge=2, description="tokens in each sequence")
    sequences: int = Field(ge=1, description="number of sequences")
    seed: int = Field(0, ge=0, description="decides which sequences of the corpus are read")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="of the model's weights")
    device: str = Field("auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, mps, cuda or cuda:N")
    batch_size: int = Field(4, ge=1, description="sequences per forward pass")
