"""State of a tensor store: whether it is what an extraction would make now, and if not, why.

Importing this module loads none of torch, transformers and datasets, and neither does a check of a finished store. An
unfinished store is compared with the libraries and the device that would continue it, which loads torch.
"""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from extract.checkpoints import OTHER_FILES, Checkpoint
from extract.gguf.models import QUANTISATION
from extract.identity import (
    SYNTHETIC_INPUTS,
    describe_changed_weights,
    describe_model,
    hash_corpus,
    is_local_corpus,
    is_local_model,
    open_model,
)
from extract.models.checks import find_device
from extract.settings import EXTRACTION_VERSION, SYNTHETIC, ExtractionSettings, describe_changes
from storage.errors import NewerError, UserError, refuse_newer
from storage.files.places import Place
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import SequenceStore

if TYPE_CHECKING:
    import torch

PROBED = ("attention", "layer_kinds")
"""Fields of the model's provenance that are only known after running it."""

VERSION = "extraction_version"
"""Key in the provenance of the version of the numbers."""

CHANGED = {
    "corpus.sha256": "the corpus file has changed",
    **dict.fromkeys(("model.sha256", f"model.{QUANTISATION}", "model.name"), "the model's weights have changed"),
    f"model.{OTHER_FILES}": "the index of the model's weights or its generation configuration has changed",
    "model.architecture": "the model's architecture has changed",
    "model.initialised_by": "the libraries that draw the model's random weights have changed",
    **{f"tokenizer.{part}": "the model's tokenizer has changed" for part in ("sha256", "start", "end", OTHER_FILES)},
}
"""The reason shown for each input that differs."""


def explain_staleness(settings: ExtractionSettings, *, study: str, path: Place) -> str | None:
    """Describe why the store at ``path`` is not what ``extract`` would make now; None if it is.

    No weights are loaded and no network is used: the files of a local model and corpus are hashed, and their location
    is ignored; a model or dataset of the hub is assumed to be at the commit that was read, so that a branch that has
    moved since is not noticed.
    """
    if not path.exists():
        return "missing"
    if replaced := explain_replacement(settings, study=study, path=path):
        return replaced
    store = SequenceStore.open(path, TENSORS)
    if not (missing := len(store.find_missing())):
        return None
    lacking = f"{missing} of {settings.sequences} sequences missing"
    device = "cpu" if settings.model.id == SYNTHETIC else describe_device(find_device(settings.device))
    versions = list_versions(device)
    if unlike := " and ".join(name for name in versions if versions[name] != store.provenance["versions"].get(name)):
        raise UserError(
            f"The store {path} has {lacking} and was made with another {unlike}; finish it where it was started, "
            f"or extract it again here: attention-geometry run {study} --fresh"
        )
    return lacking


def explain_replacement(settings: ExtractionSettings, *, study: str, path: Place) -> str | None:
    """Describe why the store at ``path`` must be rebuilt instead of continued; None if it need not, or does not exist.

    An unfinished store that another device or other versions of libraries can continue need not be rebuilt.
    """
    if not path.exists():
        return None
    try:
        store = _open_known(path)
    except NewerError:
        raise
    except UserError as error:
        if path.is_remote:  # perhaps it does not answer
            raise
        return f"cannot be read ({str(error).partition(';')[0]})"
    was = store.provenance
    version_was = was.get(VERSION, 0)
    refuse_newer(f"The store {path}", version_was, EXTRACTION_VERSION, study)
    if version_was != EXTRACTION_VERSION:
        return f"made by version {version_was} of its code, now {EXTRACTION_VERSION}"
    now = match_recorded(settings, build_provenance(settings, study, _find_inputs(settings, was["inputs"])), was)
    if changed := "; ".join(describe_changes(now["settings"], was["settings"])):
        return changed
    if was["study"] != study:
        return f"made for the study '{was['study']}'"
    inputs = ((part, name, value) for part, fields in now["inputs"].items() for name, value in fields.items())
    unlike = [f"{part}.{name}" for part, name, value in inputs if value != was["inputs"][part].get(name)]
    return "; ".join(dict.fromkeys(CHANGED.get(key, f"the {key} has changed") for key in unlike)) or None


def _open_known(path: Place) -> SequenceStore:
    store = SequenceStore.open(path, TENSORS)
    store.find_missing()
    if lacking := {"study", "settings", "inputs", "versions"} - store.provenance.keys():
        raise UserError(
            f"The store {store.path} is damaged (its provenance lacks {', '.join(sorted(lacking))}); use --fresh"
        )
    return store


def build_provenance(settings: ExtractionSettings, study: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a store without versions, as JSON; equal provenance and versions give equal bytes."""
    return {
        VERSION: EXTRACTION_VERSION,
        "study": study,
        "settings": settings.model_dump(mode="json"),
        "inputs": dict(inputs),
    }


def match_recorded(settings: ExtractionSettings, now: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance ``now``, made equal to the recorded one, ``was``, where a difference does not matter.

    Local inputs with an unchanged hash keep the recorded path: a model or text that has only been moved is the same.
    """
    local = {"model": is_local_model(settings.model), "corpus": is_local_corpus(settings.corpus)}
    known, inputs = dict(now["settings"]), {part: dict(fields) for part, fields in now["inputs"].items()}
    for part, fields in inputs.items():
        digest, path = fields.get("sha256"), {"id": was["settings"].get(part, {}).get("id")}
        if local.get(part) and digest and digest == was["inputs"][part].get("sha256"):
            known[part] = known[part] | path
            inputs[part] = fields | (path if "id" in fields else {})
    return {**now, "settings": known, "inputs": inputs}


def combine_inputs(settings: ExtractionSettings, known: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a store from what is ``known`` now; fields that are only known after reading keep their value."""
    checksum = hash_corpus(settings.corpus)
    corpus = {**was["corpus"], **({"sha256": checksum} if checksum else {})}
    probed = {name: was["model"][name] for name in PROBED if name in was["model"]}
    return {**known, "model": {**known["model"], **probed}, "corpus": corpus}


def _find_inputs(settings: ExtractionSettings, was: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as they are now; those from the hub keep their recorded value."""
    if settings.model.id == SYNTHETIC:
        return dict(SYNTHETIC_INPUTS)
    if is_local_model(settings.model):
        model = open_model(settings.model)
        described: dict[str, Any] = describe_model(model, settings)
        named = model.config.get("architectures") if isinstance(model, Checkpoint) else None
        if isinstance(named, list) and named:
            described["model"]["architecture"] = named[0]
        return combine_inputs(settings, described, was)
    known = {part: was[part] for part in ("model", "tokenizer") if part in was}
    return combine_inputs(settings, known | {"model": known["model"] | describe_changed_weights(settings)}, was)


def list_versions(device: str) -> dict[str, str]:
    """The part of the provenance on versions; ``device`` is the result of ``describe_device``."""
    import torch

    try:
        own = version("attention-geometry")
    except PackageNotFoundError:
        own = "not installed"
    libraries = {name: version(name) for name in ("numpy", "tokenizers", "transformers", "zarr")}
    known = {"attention-geometry": own, "device": device, "python": platform.python_version(), **libraries}
    return known | {"torch": torch.__version__}  # includes the build, unlike the version of the package


def describe_device(device: "torch.device") -> str:
    """The type of the device, for CUDA with the name of the GPU."""
    import torch

    return f"{device.type} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type
