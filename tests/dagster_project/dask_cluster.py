"""A Dask cluster on loopback to test with: a scheduler and workers, each a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DASK = Path(sys.executable).with_name("dask")


@dataclass
class Cluster:
    """Processes, and where they listen."""

    folder: Path
    scheduler: subprocess.Popen[bytes] | None = None
    address: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def mend(self, workers: int) -> None:
        """Have a scheduler, and so many workers of one thread at least, which join when they can."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.stop()
            port = _free_port()
            self.scheduler = _start("scheduler", "--host", "127.0.0.1", "--port", str(port))
            self.address = f"tcp://127.0.0.1:{port}"
            _await_listening(port)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        local = ("--local-directory", str(self.folder), "--host", "127.0.0.1", "--no-nanny")
        while len(self.workers) < workers:
            self.workers.append(_start("worker", self.address, "--nthreads", "1", "--nworkers", "1", *local))

    def stop(self) -> None:
        """Kill all processes."""
        for process in (*self.workers, *([self.scheduler] if self.scheduler else [])):
            kill(process)
        self.workers, self.scheduler = [], None


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster without processes; those that it has in the end are killed."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children at once, without a chance to say goodbye."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(what: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [DASK, what, *arguments, "--dashboard-address", "127.0.0.1:0"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
    return found


def _await_listening(port: int) -> None:
    import socket

    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
