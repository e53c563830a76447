"""Runs tasks in a pool of processes: each once, longest first, resumable, the same results whatever the number of jobs.

Workers put results into the store themselves; what a figure sees was read from there, fresh or not.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from t3sim.base.errors import Ended, Failure, is_ours, said_by
from t3sim.base.user_cache import cache_folder, stand_in, takes_files
from t3sim.study.tasks.store import Store
from t3sim.study.tasks.task import Task

LOOK_SECONDS = 0.2
_GRACE_SECONDS = 3.0
_ENDED = 128 + signal.SIGTERM


class Monitor:
    """Reports of the runner while it works; a terminal's bar overrides what it shows."""

    def start(self, seconds: float, tasks: int, stored_results: int) -> None:
        """Start `tasks`, guessed at `seconds` of one core; `stored_results` were there already."""

    def advance(self, seconds: float, running: list[str]) -> None:
        """Report that so much of the guess is done; labels of what is under way."""

    def finished(self, label: str, done: int, tasks: int) -> None:
        """Report that one more task is done."""

    def failed(self, failure: "TaskFailure") -> None:
        """Report that a task could not be done; the others go on."""


@dataclass(frozen=True)
class TaskFailure:
    label: str
    message: str  #: one line
    traceback: str = ""


@dataclass
class Outcome:
    results: dict[Task, Any] = field(default_factory=dict)
    failures: dict[str, TaskFailure] = field(default_factory=dict)  #: by the task's key
    stored_keys: frozenset[str] = frozenset()  #: keys of the results that were there already
    seconds: float = 0.0  #: of this run


def run_tasks(tasks: Iterable[Task], store: Store, jobs: int, monitor: Monitor,
              first: Task | None = None) -> Outcome:
    """Run tasks and return the results of all that could be done.

    `first` is done before any of them, if any is to be done at all.
    """
    with outcome_of(tasks, store) as (outcome, missing):
        if missing:
            required_tasks = {need.key: need for task in missing for need in task.requires}
            _Pool(store, jobs, monitor, outcome).run([*required_tasks.values(), *missing], first)
    return outcome


@contextmanager
def outcome_of(tasks: Iterable[Task], store: Store) -> Iterator[tuple[Outcome, list[Task]]]:
    """Give what is stored of some tasks, each once, and those that are missing; at the end it has theirs, too."""
    start = time.perf_counter()
    tasks_by_key = {task.key: task for task in tasks}
    outcome = Outcome(results={task: result for task in tasks_by_key.values()
                               if (result := store.load(task)) is not None})
    outcome.stored_keys = frozenset(task.key for task in outcome.results)
    missing = [task for task in tasks_by_key.values() if task not in outcome.results]
    yield outcome, missing
    for task in missing:
        if task.key not in outcome.failures and (result := store.load(task)) is not None:
            outcome.results[task] = result
    outcome.seconds = time.perf_counter() - start


class _Pool:
    def __init__(self, store: Store, jobs: int, monitor: Monitor, outcome: Outcome) -> None:
        self.store, self.jobs, self.monitor, self.outcome = store, jobs, monitor, outcome

    def run(self, tasks: list[Task], first: Task | None) -> None:
        all_tasks = [*([first] if first else []), *tasks]
        self.monitor.start(sum(task.seconds for task in all_tasks), len(all_tasks), len(self.outcome.stored_keys))
        if not takes_files(folder := cache_folder()):
            stand_in(folder)  # one for all workers
        other_children = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")  # a fork would take compiled code's threads and locks along
        news = context.SimpleQueue()
        with ProcessPoolExecutor(self.jobs, context, _enter_worker, (news,)) as pool:
            try:
                self._feed(pool, news, tasks, first, len(all_tasks))
            except BaseException:
                _end(set(multiprocessing.active_children()) - other_children)
                pool.shutdown(cancel_futures=True)
                raise

    def _feed(self, pool: ProcessPoolExecutor, news, tasks: list[Task], first: Task | None, count: int) -> None:
        queue = sorted(tasks, key=lambda task: (-_height(task, tasks), task.key))
        done_tasks: dict[str, Task] = {}
        running: dict[Any, Task] = {}
        fractions: dict[str, float] = {}
        if first:
            running[_submit_task(pool, first, self.store)] = first
        while running or queue:
            if not (first and first.key not in done_tasks):
                self._submit(pool, queue, running, done_tasks)
            ended_futures, _ = wait(running, LOOK_SECONDS, FIRST_COMPLETED)
            while not news.empty():
                key, fraction = news.get()
                fractions[key] = fraction
            for future in ended_futures:
                task = running[future]
                failure = self._ending(future, task, running)
                del running[future]
                done_tasks[task.key] = task
                if failure is None:
                    self.monitor.finished(task.label, len(done_tasks), count)
                elif task is first:
                    raise Failure(f"{task.label}: {failure.message}")
                else:
                    self._fail(task, failure)
            seconds = (sum(task.seconds for task in done_tasks.values())
                       + sum(task.seconds * fractions.get(task.key, 0.0) for task in running.values()))
            self.monitor.advance(seconds, [task.label for task in running.values()])

    def _submit(self, pool, queue: list[Task], running: dict, done_tasks: dict[str, Task]) -> None:
        for task in list(queue):
            if len(running) >= self.jobs:
                return
            if any(need.key in self.outcome.failures for need in task.requires):
                queue.remove(task)
                done_tasks[task.key] = task
                self._fail(task, TaskFailure(task.label, f"needs the {task.requires[0].label}, which failed"))
            elif all(need.key in done_tasks for need in task.requires):
                queue.remove(task)
                running[_submit_task(pool, task, self.store)] = task

    def _fail(self, task: Task, failure: TaskFailure) -> None:
        self.outcome.failures[task.key] = failure
        self.monitor.failed(failure)

    def _ending(self, future, task: Task, running: dict) -> TaskFailure | None:
        try:
            problem = future.result()
        except BrokenProcessPool:
            labels = ", ".join(sorted(running_task.label for running_task in running.values()))
            raise Failure(f"a worker process was killed (out of memory?) during one of: {labels}") from None
        return problem and TaskFailure(task.label, *problem)


def _submit_task(pool: ProcessPoolExecutor, task: Task, store: Store) -> Future:
    """Hand a task to the pool; the worker that may be started for it imports for a while, in which Ctrl-C waits."""
    resource_tracker.ensure_running()  # its start lets signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(work, task, store)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _height(task: Task, tasks: list[Task]) -> float:
    """Return the seconds until the end of the longest chain that this task starts."""
    later_seconds = [other.seconds for other in tasks if task in other.requires]
    return task.seconds + max(later_seconds, default=0.0)


_tell: Callable[[tuple[str, float]], None] = lambda news: None  # noqa: E731


def _end(workers: Collection[BaseProcess]) -> None:
    """Give them a moment to put their files in order."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        worker.kill()


def _enter_worker(news) -> None:
    global _tell
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # for the programs that this one starts
    signal.signal(signal.SIGTERM, _stop_worker)  # a half-written file goes, too
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    _tell = news.put


def _stop_worker(number: int, frame: object) -> NoReturn:
    raise Ended(_ENDED)


def _end_with_the_parent() -> None:
    """End this worker when its parent is killed.

    Such a parent says nothing; without this, its workers would wait for the next task for good.
    """
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def work(task: Task, store: Store) -> tuple[str, str] | None:
    """Run a task in this process and store its result. None, or what went wrong: one line and a traceback."""
    last_report = 0.0

    def progress(fraction: float) -> None:
        nonlocal last_report
        if time.monotonic() - last_report > LOOK_SECONDS:
            last_report = time.monotonic()
            _tell((task.key, fraction))

    try:
        result = task.run(progress)
        if result is not None:
            store.save(task, result)
    except Ended:
        os._exit(_ENDED)  # the pool would take it for a result
    except BaseException as error:  # a user's part may call sys.exit
        return f"{'' if is_ours(error) else f'{type(error).__name__}: '}{said_by(error)}", traceback.format_exc()
    return None
