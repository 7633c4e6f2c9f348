"""How a tensor store stands: whether it is what an extraction would make now, and if not, why.

Holds ``why_stale`` and ``why_replaced``, and what they and ``extract.extraction`` compare. What does not belong here:
the hashes of models and corpora (``extract.identity``) and making a store (``extract.extraction``).

Importing this module loads none of torch, transformers and datasets, and neither does asking about a store that is
finished. One that is not finished is compared with the libraries and the device that would go on with it, and a store
that does not say which files its tokenizer came from needs transformers to read it.
"""

from collections.abc import Mapping
from typing import Any

from extract.identity import (
    OTHER_FILES,
    SYNTHETIC_INPUTS,
    checkpoint,
    corpus_sha256,
    is_local_corpus,
    is_local_model,
    model_files,
    random_weights,
)
from extract.settings import EXTRACTION_VERSION, SAME_NUMBERS, SYNTHETIC, ExtractionSettings, changes
from storage.errors import NewerError, UserError, refuse_newer
from storage.files.places import Place
from storage.zarr.arrays import TENSORS
from storage.zarr.sequences import Provenance, SequenceStore

PROBED = ("attention", "layer_kinds")
"""What the provenance says of a model that only running it tells."""

VERSION = "extraction_version"
"""Where the provenance has the version of the numbers."""

UNRECORDED = 3
"""The version of a store whose provenance names none."""

CHANGED = {
    ("corpus", "sha256"): "the corpus file has changed",
    ("model", "sha256"): "the model's weights have changed",
    ("model", OTHER_FILES): "the index of the model's weights or its generation configuration has changed",
    ("model", "architecture"): "the model's architecture has changed",
    ("model", "initialised_by"): "the libraries that draw the model's random weights have changed",
    ("tokenizer", "sha256"): "the model's tokenizer has changed",
    ("tokenizer", "bos"): "the model's tokenizer has changed",
    ("tokenizer", OTHER_FILES): "the model's tokenizer has changed",
}
"""What it means that an input differs."""


def why_stale(settings: ExtractionSettings, *, study: str, path: Place) -> str | None:
    """Why the store at ``path`` is not what ``extract`` would make now, in words; None if it is.

    No weights are loaded and no network is used: the files of a local model and corpus are hashed, and where they are
    does not count; a model or dataset of the hub is taken to be as it was at the commit it was read at, so that a
    branch moved on since is not noticed.

    Raises
    ------
    UserError
        If a local model or corpus is missing or cannot be read, or an object store does not answer; if the store is
        unfinished and cannot be continued with this device or these versions of libraries, which is no reason to
        replace it.
    """
    if not path.exists():
        return "missing"
    if replaced := why_replaced(settings, study=study, path=path):
        return replaced
    store = SequenceStore.open(path, TENSORS)
    if not (missing := len(store.missing())):
        return None
    lacking = f"{missing} of {settings.sequences} sequences missing"
    if unlike := _changed_versions(settings, store.provenance):
        msg = (
            f"The store {path} has {lacking} and was made with another {unlike}; finish it where it was begun, "
            f"or extract all of it here: attention-geometry run {study} --fresh"
        )
        raise UserError(msg)
    return lacking


def why_replaced(settings: ExtractionSettings, *, study: str, path: Place) -> str | None:
    """Why the store at ``path`` cannot be continued but has to be rebuilt; None if it can, or if there is none.

    An unfinished one that another device or other versions of libraries can continue is not to be rebuilt.

    Raises
    ------
    UserError
        If a local model or corpus is missing or cannot be read, or an object store does not answer.
    """
    if not path.exists():
        return None
    try:
        store = SequenceStore.open(path, TENSORS)
        store.missing()
        _check_provenance(store)
    except NewerError:
        raise
    except UserError as error:
        if path.is_remote:  # perhaps it does not answer
            raise
        return f"cannot be read ({str(error).partition(';')[0]})"
    was = store.provenance
    version_was = was.get(VERSION, UNRECORDED)
    refuse_newer(f"The store {path}", version_was, EXTRACTION_VERSION, study)
    if version_was not in {EXTRACTION_VERSION, *SAME_NUMBERS}:
        return f"made by version {version_was} of its code, now {EXTRACTION_VERSION}"
    now = as_recorded(settings, made_of(settings, study, _inputs_now(settings, was["inputs"])), was)
    if changed := "; ".join(changes(now["settings"], was["settings"])):
        return changed
    if was["study"] != study:
        return f"made for the study '{was['study']}'"
    return _changed_inputs(now["inputs"], was["inputs"])


def _check_provenance(store: SequenceStore) -> None:
    """Raise a UserError if a store does not say what it was made of."""
    if lacking := {"study", "settings", "inputs", "versions"} - store.provenance.keys():
        msg = f"The store {store.path} is damaged (its provenance lacks {', '.join(sorted(lacking))}); use --fresh"
        raise UserError(msg)


def made_of(settings: ExtractionSettings, study: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a store, as JSON, but for versions; two runs with equal provenance and versions write equal bytes."""
    return {
        VERSION: EXTRACTION_VERSION,
        "study": study,
        "settings": settings.model_dump(mode="json"),
        "inputs": dict(inputs),
    }


def as_recorded(settings: ExtractionSettings, now: Provenance, was: Provenance) -> dict[str, Any]:
    """What makes a store ``now``, so that it equals what ``was`` recorded where the difference does not matter.

    Local inputs with the hash they had have the path they had: a model or a text that has only been moved is the same.
    Hashes that an earlier version of the program did not record are left out. The versions in ``SAME_NUMBERS`` have
    computed the same numbers: their stores are continued as they are.
    """
    local = {"model": is_local_model(settings.model), "corpus": is_local_corpus(settings.corpus)}
    known, inputs = dict(now["settings"]), {part: dict(fields) for part, fields in now["inputs"].items()}
    for part, fields in inputs.items():
        if OTHER_FILES not in was["inputs"].get(part, {}):
            fields.pop(OTHER_FILES, None)
        digest, path = fields.get("sha256"), {"id": was["settings"].get(part, {}).get("id")}
        if local.get(part) and digest and digest == was["inputs"][part].get("sha256"):
            known[part] = known[part] | path
            inputs[part] = fields | (path if "id" in fields else {})
    made = {**now, "settings": known, "inputs": inputs}
    if was.get(VERSION, UNRECORDED) in SAME_NUMBERS:
        del made[VERSION]
        made |= {VERSION: was[VERSION]} if VERSION in was else {}
    return made


def known_inputs(settings: ExtractionSettings, known: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a store made of what is ``known`` now; what only reading tells is as it ``was``."""
    checksum = corpus_sha256(settings.corpus)
    corpus = {**was["corpus"], **({"sha256": checksum} if checksum else {})}
    probed = {name: was["model"][name] for name in PROBED if name in was["model"]}
    return {**known, "model": {**known["model"], **probed}, "corpus": corpus}


def _inputs_now(settings: ExtractionSettings, was: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as they are now; what comes from the hub is as it was."""
    if settings.model.id == SYNTHETIC:
        return dict(SYNTHETIC_INPUTS)
    if is_local_model(settings.model):
        return known_inputs(settings, _model_now(settings, was), was)
    known = {part: was[part] for part in ("model", "tokenizer") if part in was}
    return known_inputs(settings, known | {"model": known["model"] | random_weights(settings)}, was)


def _model_now(settings: ExtractionSettings, was: Mapping[str, Any]) -> dict[str, Any]:
    """A local model and its tokenizer as they are now; what files alone decide is told by their hashes."""
    found = checkpoint(settings.model)
    known: dict[str, Any] = model_files(found)
    known["model"] |= random_weights(settings)
    named = found.config.get("architectures")
    if isinstance(named, list) and named:
        known["model"]["architecture"] = named[0]
    if OTHER_FILES not in was.get("tokenizer", {}):
        from extract.models import describe

        known["tokenizer"] |= describe(settings.model_copy(update={"device": "cpu"})).provenance["tokenizer"]
    return known


def _changed_inputs(now: Mapping[str, Any], was: Mapping[str, Any]) -> str | None:
    """Which of the inputs of equal settings are not the same any more, in words; None if all are."""
    unlike = [(part, name) for part in now for name in now[part] if now[part][name] != was[part].get(name)]
    return "; ".join(dict.fromkeys(CHANGED.get(key, f"the {'.'.join(key)} has changed") for key in unlike)) or None


def _changed_versions(settings: ExtractionSettings, was: Mapping[str, Any]) -> str:
    """What differs of the versions and the device of an unfinished store, which must not be mixed; "" if nothing."""
    from extract.models import find_device
    from extract.versions import device_name, versions

    device = "cpu" if settings.model.id == SYNTHETIC else device_name(find_device(settings.device))
    now = versions(device)
    return " and ".join(name for name in now if now[name] != was["versions"].get(name))
