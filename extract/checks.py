"""Checks of a study's inputs that need neither torch, transformers and datasets nor the network.

``check_inputs`` refuses a study within a fraction of a second. Checks that need a library are in ``extract.models``.
"""

from extract import text_files
from extract.checkpoints import Checkpoint
from extract.gguf_models import GgufModel
from extract.identity import is_local_corpus, is_local_model, open_model
from extract.settings import BUILT_IN, SYNTHETIC, ExtractionSettings
from extract.tensors import check_sizes, count_positions, read_tensor_shapes
from storage.errors import UserError


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse a local model or corpus that is missing or not valid.

    The headers of weights files and the configuration are read; neither weights nor text are. Ids of the hub and the
    device are not checked.

    Raises
    ------
    UserError
        If a local model is neither a directory with a valid configuration, weights in safetensors and a tokenizer, nor
        a valid GGUF file, or has fewer positions than ``context_length``; if a local corpus is missing, empty or of an
        unknown kind.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        check_model(open_model(settings.model), settings.context_length)
    if is_local_corpus(settings.corpus) and settings.corpus.id not in BUILT_IN:
        text_files.find_files(settings.corpus)


def check_model(description: Checkpoint | GgufModel, context_length: int) -> None:
    """Refuse a local model (``UserError``) with damaged weights, without a tokenizer, or with too few positions.

    A GGUF file has been checked when it was opened, except for its positions.
    """
    if isinstance(description, GgufModel):
        check_positions(description.name, description.positions, context_length)
        return
    check_checkpoint(description)
    description.check_tokenizer()
    check_positions(description.name, count_positions(description.config), context_length)


def check_checkpoint(description: Checkpoint) -> None:
    """Refuse (``UserError``) damaged weights, and a configuration whose sizes do not fit them; random ones fit any."""
    check_sizes(
        description.files.name, description.config, read_tensor_shapes(description) if description.weights else None
    )


def check_positions(name: str, most: int | None, context_length: int) -> None:
    """Refuse a context (``UserError``) longer than the model's positions, ``most``; None if there is no known limit."""
    if most is not None and context_length > most:
        raise UserError(
            f"The model '{name}' reads at most {most} tokens, but context_length is {context_length}; "
            f"set context_length to {most} or less"
        )
