"""Settings of a study, in words."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from reports.findings.numbers import Row, count, format_spans

CAPTURED = {
    "AttentionInterface": "rows of the queries, computed during the forward pass (AttentionInterface)",
    "two-pass": "rows of blocks of queries, each read after a cache of the preceding keys (two-pass)",
}
"""How attention was captured, by its entry in the provenance."""


def name_model(study: Row) -> str:
    """The name of a study's model in titles: of a GGUF file its own, as metadata may name a training run."""
    file = str(study["model"]).rsplit("/", 1)[-1]
    return file.removesuffix(".gguf") if file.endswith(".gguf") else shorten_path(str(study["model_name"]))


def shorten_path(name: str) -> str:
    """The last part of a path of this machine, which means nothing to other readers; any other name as it is."""
    return PurePath(name).name if PurePath(name).is_absolute() else name


def list_facts(study: Row) -> dict[str, str]:
    """List the main settings by name (``study_overview``); those that a study does not have are left out."""
    provenance, (heads, values) = json.loads(study["provenance"]), _describe_sizes(study)
    versions = iterate_entries(found) if isinstance(found := provenance.get("versions"), dict) else ()
    least, most = study["least_keys"], study["most_keys"]
    keys = f"{most}" if least == most else f"{least} to {most}, by layer"
    facts = {
        "Model": study["model"],
        "Name in its metadata": study["model_name"] if study["model_name"] != study["model"] else None,
        "Architecture": study["architecture"],
        "Weights": study["weights"],
        "Commit or SHA-256": study["revision"],
        "Corpus": name if (name := study["corpus"]) == study["corpus_name"] else f"{name}: {study['corpus_name']}",
        "Every sequence begins with": describe_start(study),
        "Special tokens in the text": _count_in_documents(
            study["special_tokens"], "spelling", "which the tokenizer does not take as text"
        ),
        "Lost from the text": _count_in_documents(
            study["lost_characters"], "character", "for which the tokenizer has no token"
        ),
        "Text": f"{count(study['sequences'], 'sequence')} of {count(study['context_length'], 'token')}",
        "Heads": heads,
        "Kinds of layers": _describe_layer_kinds(
            _find_entry(provenance, "inputs", "model", "layer_kinds"), study["attention_layers"]
        ),
        "Attention": CAPTURED.get(_find_entry(provenance, "inputs", "model", "attention")),
        "Value states": values,
        "Value states stored in": _find_entry(provenance, "settings", "values"),
        "Keys of the query": keys if most else None,
        "Weights in": study["dtype"],
        "Device": study["device"],
        "Versions": ", ".join(f"{name} {version}" for name, version in versions),
    }
    return {name: value for name, value in facts.items() if value}


def describe_start(study: Row) -> str | None:
    """The special tokens before a text, and why these; None if no text was read."""
    if study["bos"] is None:
        return None
    why = {"auto": "which the tokenizer puts before a text", "always": "as asked for (bos: always)"}
    named: str = study["text_start"] and f"{study['text_start']}, {why[study['bos']]}"
    why_none = "as asked for (bos: never)" if study["bos"] == "never" else "since the tokenizer puts none before a text"
    return named or f"no special token, {why_none}"


def _count_in_documents(found: int | None, noun: str, which: str) -> str:
    """How many things the documents read have; empty if they have none, or none were counted."""
    return f"{count(found, noun)} in the documents read, {which}" if found else ""


def iterate_entries(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested JSON as (dotted name, text)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from iterate_entries(item, f"{name}.{key}" if name else key)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _describe_sizes(study: Row) -> tuple[str, str]:
    if study["alike"]:
        return (
            f"{count(study['layers'], 'layer')} of {count(study['heads'], 'head')}",
            f"{count(study['kv_heads'], 'KV head')} in each layer, {study['head_dim']} components each",
        )
    return (
        f"{count(study['all_heads'], 'head')} in {len(study['attention_layers'])} of {count(study['layers'], 'layer')}",
        f"up to {count(study['kv_heads'], 'KV head')} in a layer, up to {study['head_dim']} components each",
    )


def _describe_layer_kinds(kinds: Sequence[str] | None, analysed: Collection[int]) -> str:
    layers: dict[str, list[int]] = {}
    for layer, kind in enumerate(kinds or ()):
        layers.setdefault(kind.replace("_", " ") + ("" if layer in analysed else ", not analysed"), []).append(layer)
    clauses = [
        f"layer{'s' if len(numbers) > 1 else ''} {format_spans(numbers, range(len(kinds or ())))}: {kind}"
        for kind, numbers in layers.items()
    ]
    return "; ".join(clauses) if len(clauses) > 1 else ""


def _find_entry(provenance: Any, *names: str) -> Any:
    for name in names:
        provenance = provenance.get(name) if isinstance(provenance, dict) else None
    return provenance
