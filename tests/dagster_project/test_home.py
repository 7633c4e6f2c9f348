"""The data root: stores set aside whole, dead runs told from living and foreign ones, incomplete stores refused."""

from pathlib import Path

import numpy as np
import pytest

from dagster_project import pipeline
from dagster_project.home import Home
from dagster_project.registration import _died, living_run
from storage.errors import UserError
from storage.locks import exclusive
from storage.sequences import SequenceStore
from tests.storage.studies import SIZES, metrics_store, one_sequence, provenance, tensor_store


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    metrics_store(home.metrics("small"), tensor_store(home.tensors("small")))
    return home


def test_stores_set_aside_come_back_if_nothing_new_was_made(home: Home) -> None:
    def failing() -> None:
        with home.without_stores("small"):
            assert not home.tensors("small").exists()
            msg = "the model is gone"
            raise UserError(msg)

    with pytest.raises(UserError, match="the model is gone"):
        failing()
    assert SequenceStore.open(home.tensors("small"), tensor_store(home.tensors("small")).specs.values()).missing() == []
    assert home.metrics("small").exists()
    assert list(home.root.rglob("*.partial")) == []


def test_stores_set_aside_go_once_new_ones_are_made(home: Home) -> None:
    (home.tensors("small") / "old").touch()
    with home.without_stores("small"):
        tensor_store(home.tensors("small"))
    assert not (home.tensors("small") / "old").exists()
    assert not home.metrics("small").exists()
    assert list(home.root.rglob("*.partial")) == []


def test_stores_in_use_are_not_set_aside(home: Home) -> None:
    with (
        exclusive(home.lock("small"), "it", wait=0),
        pytest.raises(UserError, match="Another process is working on study 'small'"),
        home.without_stores("small"),
    ):
        pass
    assert home.tensors("small").exists()


def test_a_living_run_is_dead_to_no_data_root(tmp_path: Path) -> None:
    here, elsewhere = Home(tmp_path / "a"), Home(tmp_path / "b")
    with living_run(here) as tags:
        (lock,) = tags.values()
        assert not _died(here, lock)
        assert not _died(elsewhere, lock)
    assert not _died(here, None)


def test_what_a_table_must_hold_follows_from_the_tensors_alone(home: Home) -> None:
    expected = pipeline._expected_rows(tensor_store(home.tensors("small")))
    assert expected == {
        "studies": 1,
        "heads": 8,
        "tokens": 36,
        "selection_counts": 3 * 4 * (11 + 8),  # a window hides three keys in layer 1
        "value_norm_by_position": 2 * 2 * 12,
        "attention_by_position": 4 * (12 + 9),
    }


def test_an_unfinished_store_is_not_measured(tmp_path: Path) -> None:
    from storage.arrays import TENSORS

    home = Home(tmp_path)
    SequenceStore.resume(home.tensors("small"), TENSORS, SIZES, provenance()).write(1, one_sequence(1))
    with pytest.raises(UserError, match=r"lacks 2 of 3 sequences; run the study again"):
        pipeline.measure(home, "small")
    assert not home.metrics("small").exists()


def test_a_row_of_nan_is_no_distribution(tmp_path: Path) -> None:
    """Python's max() would overlook a NaN that is not the first."""
    from extract.extraction import _row_sum_deviation

    store = tensor_store(tmp_path / "s.zarr")
    assert _row_sum_deviation(store) < 1e-6
    store.array("attention")[1] = np.nan
    assert np.isnan(_row_sum_deviation(store))
