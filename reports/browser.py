"""Scripts and data with which a page draws its charts in a browser without network access.

Holds the Vega bundle, an encoding that makes data small and safe inside HTML, and the security policy under which
exactly these scripts run.
"""

import gzip
import json
import zlib
from base64 import b64encode
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from storage.errors import UserError
from storage.files.staging import write_atomically

COMPILED = Path(__file__).parent / "__pycache__"
"""Folder of what is kept from one process to the next."""

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""Version of Vega-Lite whose charts Altair makes."""

LEVEL = 6
"""How hard ``pack`` compresses: level 9 takes several times as long, for about a hundredth of the size."""


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one JavaScript module that sets ``window.vegaEmbed`` (about 0.9 MB).

    Building it takes more than a second; the result is kept beside the compiled code of this package, if that can be
    written.
    """
    kept = COMPILED / f"vega-{metadata.version('vl-convert-python')}-{VEGA_LITE}.js.gz"
    with suppress(OSError, EOFError, zlib.error):  # there is none, or it is damaged
        return gzip.decompress(kept.read_bytes()).decode()
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    safe = text.replace("</script", "<\\/script")
    with suppress(UserError):
        write_atomically(kept, gzip.compress(safe.encode(), LEVEL), remedy="it is built again each time")
    return safe


def pack(value: Any) -> str:
    """Compress JSON and encode it in base 64: about a third of its size, and inert anywhere in a page.

    The same value gives the same text; ``report.js`` unpacks it.

    Raises
    ------
    ValueError
        If ``value`` has a number that is not finite, which JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode()


def make_policy(*scripts: str) -> str:
    """A Content-Security-Policy under which only these inline scripts run, if any, and nothing is fetched."""
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
