"""Identity of models and corpora: whether they are local, and the hashes that identify them.

A store is compared with its inputs in ``extract.standing``. Importing this module loads neither torch nor transformers,
and nothing here uses the network.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from extract import text_files
from extract.checkpoints import Checkpoint
from extract.embedded import list_topics
from extract.gguf.models import QUANTISATION, GgufModel, locate_gguf
from extract.hub import expand_path, is_local_id
from extract.settings import (
    BUILT_IN,
    EMBEDDED,
    PROSE,
    REPEATED,
    SYNTHETIC,
    TRAINING,
    CorpusSettings,
    ExtractionSettings,
    ModelSettings,
)
from storage.errors import UserError

SYNTHETIC_INPUTS: Mapping[str, Any] = {
    "model": {"id": SYNTHETIC},
    "corpus": {"documents_read": 0, "documents_skipped": 0},
}
"""The part of the provenance on model and corpus of a synthetic study, which has neither; its settings say all."""


def is_local_model(model: ModelSettings) -> bool:
    """Whether the id names a shipped model, a directory or a GGUF file; the form of a GGUF file suffices."""
    return model.id in {EMBEDDED, TRAINING} or model.is_file or is_local_id(model.id)


def is_local_corpus(corpus: CorpusSettings) -> bool:
    """Whether the id names a built-in corpus, or a file or directory; a suffix of a text file suffices."""
    return corpus.id in BUILT_IN or corpus.id.endswith(text_files.SUFFIXES) or is_local_id(corpus.id)


def open_model(model: ModelSettings) -> Checkpoint | GgufModel:
    """The files of a local model; if its weights are random, weights files of a directory are ignored."""
    if path := locate_gguf(model):
        return GgufModel.open(model.name, path)
    if model.id == TRAINING:
        path = find_training_folder(model.revision)
    else:
        path = Path(str(files("extract.embedded") / "model")) if model.id == EMBEDDED else expand_path(model.id)
    return Checkpoint.open(model.id, path, trained=model.weights == "trained")


def find_training_folder(revision: str) -> Path:
    """The directory of a checkpoint of the model ``training``, by its step."""
    known = {path.name: path for path in Path(str(files("extract.embedded") / TRAINING)).glob("step*")}
    if revision not in known:
        steps = ", ".join(sorted(known, key=lambda name: int(name.removeprefix("step"))))
        raise UserError(f"The model '{TRAINING}' has no revision '{revision}'; it has {steps}")
    return known[revision]


def find_prose() -> CorpusSettings:
    """The English prose shipped with the package, as the corpus of its file."""
    return CorpusSettings.model_validate({"id": str(files("extract.embedded") / "prose" / "prose.jsonl.gz")})


def describe_model(description: Checkpoint | GgufModel, settings: ExtractionSettings) -> dict[str, dict[str, Any]]:
    """The part of the provenance on a local model and its tokenizer that depends only on its files and the settings.

    As ``Checkpoint.describe_files`` or ``GgufModel.describe_files``; if the weights are random or rounded also how, and
    not how those of the file are stored.
    """
    known = description.describe_files(settings.dtype)
    changed = describe_changed_weights(settings)
    own = {name: value for name, value in known["model"].items() if not (changed and name == QUANTISATION)}
    return {**known, "model": own | changed | {"id": settings.model.id}}


def describe_changed_weights(settings: ExtractionSettings) -> dict[str, Any]:
    """How the weights differ from the checkpoint's; empty if they do not.

    For random weights their seed and the versions of the libraries that draw them; for rounded ones the type.
    """
    if kind := settings.model.quantised:
        return {QUANTISATION: f"rounded to {kind}, dequantised to {settings.dtype} by gguf {version('gguf')}"}
    if settings.weights_seed is None:
        return {}
    drawn_by = ", ".join(f"{library} {version(library)}" for library in ("torch", "transformers"))
    return {"weights": "random", "weights_seed": settings.weights_seed, "initialised_by": drawn_by}


def hash_corpus(corpus: CorpusSettings) -> str | None:
    """SHA-256 of a corpus that is hashed as a whole; None for a hub dataset and for random tokens."""
    if corpus.id == EMBEDDED:
        return hashlib.sha256(json.dumps(list_topics("held_out")).encode()).hexdigest()
    if corpus.id == REPEATED:
        return None
    if corpus.id == PROSE:
        return text_files.hash_files(find_prose())
    return text_files.hash_files(corpus) if is_local_corpus(corpus) else None
