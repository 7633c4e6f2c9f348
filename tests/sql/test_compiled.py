"""Compiled templates are kept beside the module that makes their environment, and never outlive a change of it."""

from pathlib import Path

import jinja2
import pytest

from sql.compiled import TemplateCache


def render(module: Path, text: str, **settings: bool) -> str:
    """The text rendered in a new environment, as another process would."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({"it": text}), bytecode_cache=TemplateCache(module), **settings
    )
    return environment.get_template("it").render(name="x\n")


def list_kept(module: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (module.parent / "__pycache__").glob("template-*.cache")}


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "made.py"
    path.write_text("settings = 1")
    return path


def test_a_template_is_compiled_once(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(module, "a {{ name }}b") == "a x\nb"
    kept = list_kept(module)
    assert len(kept) == 1
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert render(module, "a {{ name }}b") == "a x\nb"
    assert list_kept(module) == kept


def test_another_text_is_compiled(module: Path) -> None:
    assert render(module, "a {{ name }}b") == "a x\nb"
    assert render(module, "c {{ name }}b") == "c x\nb"


def test_other_settings_of_the_module_are_used(module: Path) -> None:
    text = "{% if true %}\nb{% endif %}"
    assert render(module, text) == "\nb"
    assert render(module, text, trim_blocks=True) == "\nb"  # what a stale template would give
    module.write_text("settings = 2")
    assert render(module, text, trim_blocks=True) == "b"


def test_a_folder_that_cannot_be_written_keeps_nothing(module: Path) -> None:
    (module.parent / "__pycache__").write_text("a file in its place")
    assert render(module, "a {{ name }}b") == "a x\nb"
    assert render(module, "a {{ name }}b") == "a x\nb"


def test_a_damaged_file_is_replaced(module: Path) -> None:
    assert render(module, "a {{ name }}b") == "a x\nb"
    ((name, kept),) = list_kept(module).items()
    for damaged in (b"", kept[: len(kept) // 2], kept.replace(b"x", b"y")[:-1], b"\0" * len(kept)):
        (module.parent / "__pycache__" / name).write_bytes(damaged)
        assert render(module, "a {{ name }}b") == "a x\nb"
        assert list_kept(module) == {name: kept}
