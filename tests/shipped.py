"""Shipped studies, run once for all tests that read them."""

from pathlib import Path

import pytest

from dagster_project.study.home import Home
from dagster_project.study.studies import find_study
from extract.gguf.models import find_package_file
from storage.errors import UserError
from tests.dagster_project.driver import attention_geometry
from tests.shared import shared


def run_shipped(name: str, factory: pytest.TempPathFactory) -> Path:
    """The data root in which the study has been run; without the package of its model the test is skipped."""
    model = find_study(Home(factory.mktemp("empty")), name).model.id
    try:
        if model.startswith("package:"):
            find_package_file(model)
    except UserError as error:
        pytest.skip(str(error))

    def build(folder: Path) -> None:
        done = attention_geometry("run", name, home=folder)
        assert done.code == 0, done.errors

    return shared(factory, name, build)
