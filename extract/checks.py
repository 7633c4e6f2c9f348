"""What can be said of a study's inputs before torch, transformers and datasets are imported.

Holds ``check_inputs``, for the command line and for whatever else wants to refuse within a fraction of a second. What
does not belong here: what only a library that loads models can tell (``extract.models``), and the network.
"""

from extract import text_files
from extract.checkpoints import Checkpoint
from extract.identity import checkpoint, is_local_corpus, is_local_model
from extract.settings import EMBEDDED, SYNTHETIC, ExtractionSettings
from extract.tensors import check_sizes, positions, tensor_shapes
from storage.errors import UserError


def check_inputs(settings: ExtractionSettings) -> None:
    """Refuse a local model or corpus that is missing or cannot be what it should be.

    Headers of weights files and the configuration are read; neither weights nor text are. Ids of the hub are left
    alone, and whether a device is there only torch can tell.

    Raises
    ------
    UserError
        If a local model is no directory with a sound configuration, weights in safetensors and a tokenizer, or has
        fewer positions than ``context_length``; if a local corpus is missing, empty or of an unknown kind.
    """
    if settings.model.id == SYNTHETIC:
        return
    if is_local_model(settings.model):
        found = checkpoint(settings.model)
        check_checkpoint(found)
        found.check_tokenizer()
        check_positions(found.files.name, positions(found.config), settings.context_length)
    if is_local_corpus(settings.corpus) and settings.corpus.id != EMBEDDED:
        text_files.files(settings.corpus)


def check_checkpoint(found: Checkpoint) -> None:
    """Refuse weights that are damaged, and a configuration whose sizes they cannot have; random ones have any.

    Raises
    ------
    UserError
        In either case.
    """
    check_sizes(found.files.name, found.config, tensor_shapes(found) if found.weights else None)


def check_positions(name: str, most: int | None, context_length: int) -> None:
    """Refuse a context longer than the model has positions; None: it has no limit, or none that is known.

    Raises
    ------
    UserError
        If it is.
    """
    if most is not None and context_length > most:
        msg = (
            f"The model '{name}' reads at most {most} tokens, context_length asks for {context_length}; "
            f"set context_length to {most} or less"
        )
        raise UserError(msg)
