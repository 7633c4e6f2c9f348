"""Scripts and data with which a page draws its charts in a browser without network access.

Holds the Vega bundle, an encoding that makes data small and safe inside HTML, and the security policy under which
exactly these scripts run.
"""

import gzip
import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any

import altair as alt
import vl_convert


@cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one JavaScript module that sets ``window.vegaEmbed`` (about 0.9 MB).

    Building it takes about a second; the result is cached for the life of the process.
    """
    major, minor, *_ = alt.SCHEMA_VERSION.removeprefix("v").split(".")
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=f"{major}.{minor}")
    return text.replace("</script", "<\\/script")


def pack(value: Any) -> str:
    """Compress JSON and encode it in base 64: about a third of its size, and inert anywhere in a page.

    The same value gives the same text; ``report.js`` unpacks it.

    Raises
    ------
    ValueError
        If ``value`` has a number that is not finite, which JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def make_policy(*scripts: str) -> str:
    """A Content-Security-Policy under which only these inline scripts run, if any, and nothing is fetched."""
    hashes = (
        " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts) or "'none'"
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
