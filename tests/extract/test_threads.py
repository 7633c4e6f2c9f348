"""Division of PyTorch's threads among independent parts."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from extract.attention import run_on_threads

CPU = torch.device("cpu")


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_parts_run_together_share_the_threads_and_see_the_callers_mode(threads: int) -> None:
    together = threading.Barrier(threads, timeout=30)

    def look(index: int) -> tuple[int, int, bool]:
        together.wait()
        return index, torch.get_num_threads(), torch.is_inference_mode_enabled()

    for inference in (False, True):
        with torch.inference_mode(inference):
            seen = run_on_threads(look, threads, CPU)
        assert seen == [(index, 1, inference) for index in range(threads)]
    with pytest.raises(ZeroDivisionError):
        run_on_threads(lambda index: 1 // index, 3, CPU)
    with ThreadPoolExecutor(1) as pool:
        assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == threads
    places = run_on_threads(lambda _: threading.current_thread(), 4, torch.device("meta"))
    assert set(places) == {threading.current_thread()}
