"""What the tests of the warehouse share."""

from pathlib import Path

import pytest

from tests.storage import studies
from tests.storage.studies import Tables


@pytest.fixture(scope="module")
def tables() -> Tables:
    return studies.tables()


@pytest.fixture(scope="module")
def landed(landed_root: Path) -> Path:
    """A warehouse that holds the study ``small``; only read."""
    return landed_root / "warehouse"
