"""The runner's progress on standard error: a bar with the time left, or a line per task without a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from t3sim.study.tasks.runner import Monitor, TaskFailure


@contextmanager
def show_progress() -> Iterator[Monitor]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.fields[count]}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"),
               TimeElapsedColumn(), TextColumn("{task.fields[left]}"), TextColumn("[dim]{task.fields[running]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(progress)


class _Timed(Monitor):
    """Knows how much time is left if the rest goes as fast as what is done."""

    def __init__(self) -> None:
        self._started, self._work, self._done = time.monotonic(), 1.0, 0.0

    def start(self, seconds: float, tasks: int, stored_results: int) -> None:
        self._started, self._work, self._done = time.monotonic(), max(seconds, 1e-9), 0.0

    def advance(self, seconds: float, running: list[str]) -> None:
        self._done = max(self._done, seconds)

    @property
    def left(self) -> str:
        if self._done < 0.01 * self._work:
            return "time left: ?"
        seconds = (time.monotonic() - self._started) * (self._work - self._done) / self._done
        if seconds < 90:
            return f"{seconds:.0f} s left"
        return f"{seconds / 60:.0f} min left" if seconds < 5400 else f"{seconds / 3600:.1f} h left"


class _Lines(_Timed):
    def start(self, seconds: float, tasks: int, stored_results: int) -> None:
        super().start(seconds, tasks, stored_results)
        print(f"t3: {tasks} tasks to do, {stored_results} results kept", file=sys.stderr, flush=True)

    def finished(self, label: str, done: int, tasks: int) -> None:
        print(f"t3: {done} of {tasks}: {label} done, {self.left}", file=sys.stderr, flush=True)

    def failed(self, failure: TaskFailure) -> None:
        print(f"t3: failed: {failure.label}: {failure.message}", file=sys.stderr, flush=True)


class _Bar(_Timed):
    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task("", total=1.0, count="", left="", running="")

    def start(self, seconds: float, tasks: int, stored_results: int) -> None:
        super().start(seconds, tasks, stored_results)
        self._progress.update(self._task, count=f"0 of {tasks}")

    def advance(self, seconds: float, running: list[str]) -> None:
        super().advance(seconds, running)
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        self._progress.update(self._task, completed=min(1.0, self._done / self._work), left=self.left,
                              running=running[0] + more if running else "")

    def finished(self, label: str, done: int, tasks: int) -> None:
        self._progress.update(self._task, count=f"{done} of {tasks}")

    def failed(self, failure: TaskFailure) -> None:
        self._progress.console.print(f"t3: failed: {failure.label}: {failure.message}", markup=False, highlight=False)
