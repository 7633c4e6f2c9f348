"""The data root, the folder that contains all data of the product, and places that a user names."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from storage.errors import UserError
from storage.files.places import LocalPlace, Place
from storage.files.user_paths import resolve_path

HOME_VARIABLE = "ATTENTION_GEOMETRY_HOME"
"""Environment variable that names the data root."""

DEFAULT_HOME = "data"
"""The data root without that variable, below the current folder."""

SCHEMES = ("s3", "gs", "az")
"""Object stores by the scheme of their URLs: Amazon S3 and compatible stores, Google Cloud Storage, Azure."""


def data_root(given: Path | str | None = None) -> Path:
    """The data root: the one given, else the one that ``ATTENTION_GEOMETRY_HOME`` names, else ``./data``; absolute.

    ``UserError`` if it is not a path that can be used.
    """
    return resolve_path(given or os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def warehouse_of(root: Path) -> Path:
    """The folder of a data root's published databases, one per study."""
    return root / "warehouse"


def parse_place(text: str) -> Place:
    """The place that ``text`` names: a URL of one of the ``SCHEMES``, or a path.

    ``UserError`` if it is a path that cannot be used, or a URL of another scheme, without a bucket, or with a user, a
    password or a query, which the message does not repeat; or if obstore is not installed.
    """
    if "://" not in text:
        return LocalPlace(resolve_path(text))
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UserError(
            f"The URL begins with '{scheme}://', which is not a supported object store; name a folder, or {known}"
        )
    if "@" in rest or "?" in rest or "#" in rest:
        msg = (
            f"The {scheme}:// URL has more than a bucket and a prefix (one of @ ? #); "
            "credentials and options belong in the environment, such as AWS_ACCESS_KEY_ID"
        )
        raise UserError(msg)
    if not urlsplit(text).netloc:
        raise UserError(f"The URL '{text}' names no bucket; write {scheme}://BUCKET/PREFIX")
    from storage.files.objects import RemotePlace

    return RemotePlace(text.rstrip("/"))
