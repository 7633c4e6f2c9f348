"""What models and corpora share in dealing with the Hugging Face libraries: ids, noise and error messages.

What does not belong here: finding and reading models (``extract.models``) or text (``extract.corpora``). Importing this
module loads none of their libraries.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")


def means_a_path(name: str) -> bool:
    """Whether an id names something local: because it is there, by its form, or because the hub allows no such id."""
    if name[0] in "./~" or exists(name):
        return True
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return True
    return False


def exists(name: str) -> bool:
    """Whether there is such a path; one that cannot be looked at, or is too long for one, is none."""
    try:
        return local_path(name).exists()
    except (OSError, ValueError):
        return False


def local_path(name: str) -> Path:
    """The path that an id stands for, with a leading ``~`` replaced by the home directory, where there is one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~NAME of a user that does not exist
        return Path(name)


def one_line(error: BaseException) -> str:
    """The first line of an error's message, without its full stop, and without what addresses have behind ``?``.

    Where that line only announces the next one (it ends with a colon), both. The address that the hub sends a client to
    for a file carries a signature there, which lets anyone read the file.
    """
    lines = [line.strip() for line in str(error).strip().splitlines()]
    said = " ".join(lines[:2]) if lines and lines[0].endswith(":") else lines[0] if lines else type(error).__name__
    return _QUERY.sub(r"\1", said.rstrip("."))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what transformers and the hub client log, and the bars of loading weights, away from the terminal.

    Bars of downloads stay; the hub client shows them on a terminal only.
    """
    from huggingface_hub import logging as hub_logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    verbosity, hub_verbosity = transformers_logging.get_verbosity(), hub_logging.get_verbosity()
    bars, downloads = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.ERROR)
    hub_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    if downloads:
        enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
