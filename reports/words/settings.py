"""What was run, in words.

What does not belong here: what came of it (the other modules of this package).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from reports.words.numbers import Row, count


def facts(study: Row) -> dict[str, str]:
    """The settings one asks for first, by name (``study_overview``); those that a study does not have are left out."""
    least, most = study["least_keys"], study["most_keys"]
    keys = f"{most}" if least == most else f"{least} to {most}, by layer"
    told = {
        "Model": study["model"],
        "Commit or SHA-256": study["revision"],
        "Corpus": study["corpus"],
        "Text": f"{count(study['sequences'], 'sequence')} of {count(study['context_length'], 'token')}",
        "Heads": f"{count(study['layers'], 'layer')} of {count(study['heads'], 'head')}",
        "Value states": f"{count(study['kv_heads'], 'KV head')} in each layer, {study['head_dim']} numbers each",
        "Keys of the query": keys if most else None,
        "Weights in": study["dtype"],
        "Device": study["device"],
        "Versions": _versions(json.loads(study["provenance"])),
    }
    return {name: value for name, value in told.items() if value}


def entries(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested JSON as (dotted name, text)."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from entries(item, f"{name}.{key}" if name else key)
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _versions(provenance: Mapping[str, Any]) -> str:
    """Library versions in one line; empty where none were recorded."""
    versions = provenance.get("versions")
    return ", ".join(f"{name} {version}" for name, version in entries(versions)) if isinstance(versions, dict) else ""
