"""Division of PyTorch's threads among independent parts."""

import threading
from collections.abc import Iterator

import pytest
import torch

from extract.attention import run_on_threads

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def count_threads_of_new_thread() -> int:
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return counts[0]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(("count", "shares"), [(5, [1, 1, 1]), (2, [1, 1, 1]), (1, [1, 2, 3])])
def test_parts_share_the_threads_and_see_the_callers_mode(
    threads: int, inference: bool, count: int, shares: list[int]
) -> None:
    def look(index: int) -> tuple[int, int, bool]:
        return index, torch.get_num_threads(), torch.is_inference_mode_enabled()

    with torch.inference_mode(inference):
        seen = run_on_threads(look, count, CPU)
    assert seen == [(index, shares[threads - 1], inference) for index in range(count)]
    assert torch.get_num_threads() == count_threads_of_new_thread() == threads


def test_parts_run_at_the_same_time(threads: int) -> None:
    together = threading.Barrier(threads, timeout=30)
    run_on_threads(lambda _: together.wait(), threads, CPU)


@pytest.mark.usefixtures("threads")
def test_on_another_device_they_follow_one_another() -> None:
    places = run_on_threads(lambda _: threading.current_thread(), 4, torch.device("meta"))
    assert set(places) == {threading.current_thread()}


def test_an_error_is_raised_and_the_threads_are_restored(threads: int) -> None:
    with pytest.raises(ZeroDivisionError):
        run_on_threads(lambda index: 1 // index, 3, CPU)
    assert torch.get_num_threads() == threads
