"""The pool of processes: each task once, resumable, the same results for any number of jobs, failures in one line."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from t3sim.base.errors import Failure
from t3sim.machine import load_machine
from t3sim.mechanisms.track_trigger import FusedGemm, GatherAfter
from t3sim.papers.figure import paper_setup
from t3sim.papers.registry import FIGURES
from t3sim.runs import kernels
from t3sim.runs.kernel_results import IsolatedKernel, Traffic
from t3sim.runs.phases import Moved
from t3sim.study.tasks.runner import Monitor, run_tasks
from t3sim.study.tasks.store import Store
from t3sim.study.tasks.task import kernel_task
from t3sim.workload.workloads import gemm_workload
from tests.support.fake_kernels import FakeTask, fake_kernel

pytestmark = pytest.mark.slow


class Watch(Monitor):
    """Remembers what it was told; interrupts after so many tasks."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.order, self.failures, self.progress, self.kept, self.limit = [], [], [], None, interrupt_after

    def start(self, seconds, tasks, kept):
        self.kept, self.work = kept, seconds

    def advance(self, seconds, running):
        self.progress.append(seconds)

    def finished(self, label, done, tasks):
        self.order.append(label)
        if len(self.order) == self.limit:
            raise KeyboardInterrupt

    def failed(self, failure):
        self.failures.append(failure)


def test_longest_first_each_once_and_what_it_needs_before(tmp_path):
    need = FakeTask("need", 0.5)
    tasks = [FakeTask("short", 1.0), FakeTask("long", 3.0), FakeTask("after", 2.8, requires=(need,)),
             FakeTask("short", 1.0)]
    watch = Watch()
    outcome = run_tasks(tasks, Store(tmp_path), 1, watch, first=FakeTask("first", 0.1))
    # `need` starts a chain of 3.3 seconds
    assert watch.order == [f"task {name}" for name in ("first", "need", "long", "after", "short")]
    assert len(outcome.results) == 3 and not outcome.failures
    assert watch.progress == sorted(watch.progress) and watch.progress[-1] == pytest.approx(watch.work)


def test_results_do_not_depend_on_jobs(tmp_path):
    tasks = [FakeTask(name, index) for index, name in enumerate("abcdef")]
    one, two = (run_tasks(tasks, Store(tmp_path / str(jobs)), jobs, Watch()) for jobs in (1, 2))
    assert one.results == two.results and len(one.results) == 6
    assert one.results[tasks[0]] == IsolatedKernel(97.0, 1, {"gemm": Moved(1)}, (1,), (2,))


def test_an_interrupted_run_resumes(tmp_path):
    tasks = [FakeTask(name, 5 - index) for index, name in enumerate("abcd")]
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, store, 1, Watch(interrupt_after=2))
    assert not multiprocessing.active_children()
    kept = {path.stem for path in tmp_path.iterdir()}
    assert {"fake-a", "fake-b"} <= kept and not any(name.startswith(".") for name in kept)
    watch = Watch()
    outcome = run_tasks(tasks, store, 1, watch)
    assert watch.kept >= 2 and len(watch.order) + watch.kept == 4 and len(outcome.results) == 4
    again = Watch()
    assert run_tasks(tasks, store, 1, again).results == outcome.results and again.order == []


def test_an_interrupt_does_not_wait_for_a_long_task(tmp_path):
    tasks = [FakeTask("quick", 1), FakeTask("endless", 2, sleep=600)]
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, Store(tmp_path), 2, Watch(interrupt_after=1))
    assert not multiprocessing.active_children()


def test_a_worker_that_is_ended_puts_its_files_in_order(tmp_path):
    half_written = tmp_path / "result.part"
    tasks = [FakeTask("quick", 1, waits_for=str(half_written)),
             FakeTask("endless", 2, sleep=600, keeps=str(half_written))]
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, Store(tmp_path), 2, Watch(interrupt_after=1))
    assert [path.name for path in tmp_path.iterdir()] == ["fake-quick.json"]


def test_a_failure_is_one_line_and_spares_the_others(tmp_path):
    broken = FakeTask("broken", 3, fails="no  such\nthing")
    tasks = [broken, FakeTask("good", 1), FakeTask("bug", 2, fails="bug"), FakeTask("waits", 1, requires=(broken,))]
    watch = Watch()
    outcome = run_tasks(tasks, Store(tmp_path), 1, watch)
    messages = {one.label: one.message for one in watch.failures}
    assert messages == {"task broken": "no such thing", "task bug": "ZeroDivisionError: in the model",
                        "task waits": "needs the task broken, which failed"}
    assert [task.name for task in outcome.results] == ["good"]
    assert "ZeroDivisionError" in outcome.failures["fake-bug"].traceback


def test_what_must_come_first_must_work(tmp_path):
    with pytest.raises(Failure, match="^task first: no compiler$"):
        run_tasks([FakeTask("a")], Store(tmp_path), 1, Watch(), first=FakeTask("first", fails="no compiler"))


def test_a_killed_worker_is_named(tmp_path):
    with pytest.raises(Failure, match="killed .* one of: task dies"):
        run_tasks([FakeTask("dies", fails="die")], Store(tmp_path), 1, Watch())


@pytest.mark.parametrize("kernel", [kernels.GEMM, kernels.REDUCE_SCATTER, GatherAfter("mca"),
                                    FusedGemm("mca", staged=True)])
def test_every_kind_of_result_is_given_back(tmp_path, kernel):
    store = Store(tmp_path)
    task = kernel_task(kernel, load_machine(), gemm_workload("2048x1024x64", 4), window_cycles=100)
    store.save(task, fake_kernel(task))
    assert store.load(task) == fake_kernel(task)


def test_store_gives_back_what_it_was_given_or_nothing(tmp_path):
    store, task = Store(tmp_path), FakeTask("x")
    assert store.load(task) is None
    traffic = Traffic(10, ((1, 2), (3, 4)))
    result = IsolatedKernel(7.5, 8, {"gemm": Moved(9, 10)}, (1, 2), (3,), exchange_ns=0.5, traffic=traffic,
                            host_seconds=0.1)
    store.save(task, result)
    assert store.load(task) == result and store.load(task).host_seconds == 0.1
    for damage in ("", "{", "{}", '{"result": {"ns": 1}, "host_seconds": 1}'):
        (tmp_path / "fake-x.json").write_text(damage)
        assert store.load(task) is None


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    program = tmp_path / "campaign.py"
    program.write_text(textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.support.fake_kernels import FakeTask
        from t3sim.study.tasks.runner import Monitor, run_tasks
        from t3sim.study.tasks.store import Store
        from pathlib import Path

        class Tell(Monitor):
            def finished(self, label, done, tasks):
                print("finished", flush=True)

        if __name__ == "__main__":
            run_tasks([FakeTask("quick", 2), FakeTask("long", 1, sleep=600)], Store(Path({str(tmp_path)!r})), 2, Tell())
    """))
    parent = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "finished\n"
    workers = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    assert len(workers) >= 2
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while (left := [pid for pid in workers if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def test_ctrl_c_spares_a_worker_that_still_imports(tmp_path):
    """A terminal sends it to all; a worker that took it then would print a traceback and break the pool."""
    program = tmp_path / "campaign.py"
    program.write_text(textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        if __name__ == "__mp_main__":
            os.kill(os.getpid(), signal.SIGINT)
        from tests.support.fake_kernels import FakeTask
        from t3sim.study.tasks.runner import Monitor, run_tasks
        from t3sim.study.tasks.store import Store
        from pathlib import Path

        if __name__ == "__main__":
            done = run_tasks([FakeTask("one"), FakeTask("two")], Store(Path({str(tmp_path)!r})), 2, Monitor())
            os.kill(os.getpid(), signal.SIGINT) if len(done.results) == 2 else None
    """))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert done.returncode == -signal.SIGINT and done.stderr.count("Traceback") == 1, "the parent takes it, as before"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_no_two_tasks_have_the_same_label():
    setup = paper_setup(load_machine())
    tasks = {task.key: task for figure in FIGURES.values() for task in figure.tasks(setup)}
    labels = [task.label for task in tasks.values()]
    assert len(labels) > 100 and len(set(labels)) == len(labels)
