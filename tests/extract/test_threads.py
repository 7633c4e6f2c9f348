"""Division of PyTorch's threads among independent parts."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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
    with pytest.raises(ZeroDivisionError):
        run_on_threads(lambda index: 1 // index, 3, CPU)
    with ThreadPoolExecutor(1) as pool:
        assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == threads


def test_parts_run_at_the_same_time_on_a_cpu_alone(threads: int) -> None:
    together = threading.Barrier(threads, timeout=30)
    run_on_threads(lambda _: together.wait(), threads, CPU)
    places = run_on_threads(lambda _: threading.current_thread(), 4, torch.device("meta"))
    assert set(places) == {threading.current_thread()}
