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
from extract.embedded.manual import list_topics
from extract.hub import expand_path, is_local_id
from extract.settings import EMBEDDED, SYNTHETIC, CorpusSettings, ExtractionSettings, ModelSettings

SYNTHETIC_INPUTS: Mapping[str, Any] = {
    "model": {"id": SYNTHETIC},
    "corpus": {"documents_read": 0, "documents_skipped": 0},
}
"""The part of the provenance on model and corpus of a synthetic study, which has neither; its settings say all."""

OTHER_FILES = "files_sha256"
"""Key in the provenance of the hash of files of a model or tokenizer that its ``sha256`` does not cover."""


def is_local_model(model: ModelSettings) -> bool:
    """Whether the id names the embedded model or a directory."""
    return model.id == EMBEDDED or is_local_id(model.id)


def is_local_corpus(corpus: CorpusSettings) -> bool:
    """Whether the id names the embedded corpus, or a file or directory; a suffix of a text file suffices."""
    return corpus.id == EMBEDDED or corpus.id.endswith(text_files.SUFFIXES) or is_local_id(corpus.id)


def open_checkpoint(model: ModelSettings) -> Checkpoint:
    """The files of a local model; if its weights are random, weights files are ignored.

    Raises
    ------
    UserError
        As ``Checkpoint.open``.
    """
    path = find_embedded_folder() if model.id == EMBEDDED else expand_path(model.id)
    return Checkpoint.open(model.id, path, trained=model.weights == "trained")


def find_embedded_folder() -> Path:
    """The directory of the model shipped with the package."""
    return Path(str(files("extract.embedded") / "model"))


def describe_model_files(found: Checkpoint) -> dict[str, dict[str, str]]:
    """The part of the provenance on a local model and its tokenizer that depends only on its files.

    Returns
    -------
    dict
        ``model``: id, SHA-256 of configuration and weights, and SHA-256 of the other files that determine the model;
        ``tokenizer``: SHA-256 of the files that it may be read from.

    Raises
    ------
    UserError
        If a file cannot be read.
    """
    return {
        "model": {"id": found.files.name, "sha256": found.hash_model(), OTHER_FILES: found.hash_other_files()},
        "tokenizer": {OTHER_FILES: found.hash_tokenizer()},
    }


def describe_random_weights(settings: ExtractionSettings) -> dict[str, Any]:
    """What determines random weights in addition to the configuration: their seed and versions of libraries.

    Returns
    -------
    dict
        ``weights``, ``weights_seed`` and ``initialised_by``; empty if the weights are the checkpoint's.
    """
    if settings.weights_seed is None:
        return {}
    drawn_by = ", ".join(f"{library} {version(library)}" for library in ("torch", "transformers"))
    return {"weights": "random", "weights_seed": settings.weights_seed, "initialised_by": drawn_by}


def hash_corpus(corpus: CorpusSettings) -> str | None:
    """SHA-256 of a corpus that is hashed as a whole; None for a hub dataset.

    Raises
    ------
    UserError
        If it is a local file or directory that is missing, empty, of an unknown kind, or cannot be read.
    """
    if corpus.id == EMBEDDED:
        return hashlib.sha256(json.dumps(list_topics("held_out")).encode()).hexdigest()
    return text_files.hash_files(corpus) if is_local_corpus(corpus) else None
