"""A study on a cluster of this machine whose processes are killed: nothing is lost, and nothing else is repeated."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from t3sim import cli
from tests.support.studies import COLLECTIVES, written

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STUDY = COLLECTIVES.replace('sizes = ["1M", "2M", "4M"]', 'sizes = ["1M", "2M", "4M", "8M", "16M", "32M"]').replace(
    '"full:4"', '"torus:4x4"')
POINTS = 12


class Cluster:
    """A scheduler and workers of one thread each, as a user starts them."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        until(lambda: self._file.exists() and self._file.read_text())  # made first, then written
        self.workers = [self._start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
                        for _ in range(workers)]
        self.address = json.loads(self._file.read_text())["address"]

    def _start(self, kind: str, *options: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file",
                                 str(self._file), *options], cwd=ROOT,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def until(holds, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the cluster is too slow"
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path):
    running = Cluster(tmp_path, 2)
    yield running
    running.close()


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """The study on this machine alone."""
    folder = tmp_path_factory.mktemp("here")
    assert cli.main(["sweep", str(written(folder, STUDY)), "--out", str(folder / "out"), "--jobs", "1"]) == 0
    return folder / "out"


def started(folder: Path, *options: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "t3sim.cli", "sweep", str(written(folder, STUDY)), "--out",
                             str(folder / "out"), "--json", "-", *options], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def results(folder: Path) -> dict[str, int]:
    """Results by file, with the times at which they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "out" / "cache").glob("*.json")}


def test_a_killed_worker_loses_nothing(cluster, here, tmp_path):
    sweep = started(tmp_path, "--scheduler", cluster.address)
    until(lambda: len(results(tmp_path)) >= 2)
    before = results(tmp_path)
    os.kill(cluster.workers[0].pid, signal.SIGKILL)
    answer, said = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, said
    assert json.loads(answer)["done"] == POINTS
    assert (tmp_path / "out" / "results.parquet").read_bytes() == (here / "results.parquet").read_bytes()
    after = results(tmp_path)
    assert len(after) == POINTS and {name: after[name] for name in before} == before, "what was there is not repeated"


def test_a_killed_scheduler_loses_nothing(cluster, here, tmp_path):
    sweep = started(tmp_path, "--scheduler", cluster.address)
    until(lambda: len(results(tmp_path)) >= 2)
    cluster.scheduler.kill()
    _, error = sweep.communicate(timeout=300)
    assert sweep.returncode == 1 and "is gone: finished results are kept" in error.splitlines()[-1]
    cluster.close()
    before = results(tmp_path)
    assert 2 <= len(before) < POINTS
    rest = started(tmp_path, "--jobs", "1")
    answer, error = rest.communicate(timeout=300)
    assert rest.returncode == 0, error
    assert json.loads(answer)["kept"] == len(before)
    after = results(tmp_path)
    assert {name: after[name] for name in before} == before
    assert (tmp_path / "out" / "results.parquet").read_bytes() == (here / "results.parquet").read_bytes()


def test_workers_with_several_threads_are_refused(tmp_path, capsys):
    crowded = Cluster(tmp_path, 0)
    try:
        crowded.workers.append(crowded._start("worker", "--nthreads", "2", "--no-nanny", "--no-dashboard"))
        sweep = None
        for _ in range(60):  # a worker needs a moment to register
            sweep = started(tmp_path, "--scheduler", crowded.address)
            time.sleep(2)
            if sweep.poll() is not None or not results(tmp_path):
                break
        _, said = sweep.communicate(timeout=120)
        assert "start workers with --nthreads 1" in said
    finally:
        crowded.close()


def test_nobody_at_the_address(tmp_path, capsys):
    assert cli.main(["sweep", str(written(tmp_path, STUDY)), "--out", str(tmp_path / "out"), "--scheduler",
                     "tcp://127.0.0.1:1"]) == 1
    assert "no scheduler answers at tcp://127.0.0.1:1" in capsys.readouterr().err
