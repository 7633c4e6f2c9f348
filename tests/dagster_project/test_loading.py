"""What the garbage collector visits of libraries that a run imports."""

import gc
import weakref

import pytest

from dagster_project.assets.loading import suspend_gc


class Held:
    """An object that refers to itself, so that only the garbage collector can remove it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_not_visited_again() -> None:
    with suspend_gc():
        assert not gc.isenabled()
        library = Held()
    assert gc.isenabled()
    assert not any(found is library for found in gc.get_objects())


def test_what_was_garbage_before_is_removed_and_not_kept() -> None:
    garbage = weakref.ref(Held())
    with suspend_gc():
        pass
    assert garbage() is None


def test_garbage_is_collected_after_an_import_that_failed() -> None:
    with pytest.raises(ImportError), suspend_gc():
        raise ImportError
    assert gc.isenabled()
    garbage = weakref.ref(Held())
    gc.collect()
    assert garbage() is None
