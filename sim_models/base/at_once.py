"""Tasks on several threads, for what leaves the interpreter to others most of the time: compiled loops, compilers."""

import contextlib
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Task = Callable[[Callable[[float], None]], Result]


#: Processor seconds of threads that helped this one.
_of_helpers = threading.local()


def processor_seconds() -> float:
    """Return the processor time of this thread, and of those that helped it (`helped`)."""
    return time.thread_time() + getattr(_of_helpers, "seconds", 0.0)


@contextlib.contextmanager
def helped() -> Iterator[Callable[..., None]]:
    """Give a function by which other threads call what they do for this one; in the end their time is its own."""
    spent: list[float] = []

    def help(task: Callable[..., object], *arguments) -> None:
        started = time.thread_time()
        task(*arguments)
        spent.append(time.thread_time() - started)

    try:
        yield help
    finally:
        _of_helpers.seconds = getattr(_of_helpers, "seconds", 0.0) + sum(spent)


#: The end of a task that is not wanted any more: of all exceptions the one of which a thread prints nothing, wherever
#: it meets it; a class made from it is printed.
ENDED = SystemExit


def at_once(tasks: Mapping[Key, Task], threads: int, progress: Callable[[Key, float], None],
            needs: Mapping[Key, Key] = {}) -> dict[Key, Result]:
    """Run tasks, on at most this many threads, and give their results in the order of `tasks`, in which they are begun.

    Each task is called with a function that takes how much of it is done; `progress` hears of that, and of 1.0 at the
    end, in the caller's thread. A task that has an entry in `needs` begins after that one, which stands before it.
    Raises what a task or `progress` raises, and KeyboardInterrupt, when the other tasks have been ended: at once in
    Python, in compiled code when they tell next how much is done.
    """
    if threads == 1 or len(tasks) < 2:
        results = {}
        for key, task in tasks.items():
            results[key] = task(partial(progress, key))
            progress(key, 1.0)
        return results
    return _Threads(tasks, needs).run(min(threads, len(tasks)), progress)


class _Threads:
    def __init__(self, tasks: Mapping[Key, Task], needs: Mapping[Key, Key]) -> None:
        self._tasks, self._needs = tasks, needs
        self._waiting = list(tasks)
        self._done: dict[Key, Result] = {}
        self._changed = threading.Condition()
        self._unwanted = False
        self._news: queue.SimpleQueue[tuple] = queue.SimpleQueue()  # key, fraction (None: done), error

    def run(self, count: int, progress: Callable[[Key, float], None]) -> dict[Key, Result]:
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        try:
            for thread in threads:
                thread.start()
            unfinished = set(self._tasks)
            while unfinished:
                key, fraction, error = self._news.get()
                if error is not None:
                    raise error
                progress(key, 1.0 if fraction is None else fraction)
                if fraction is None:
                    unfinished.discard(key)
        except BaseException:
            self._end(threads)
            raise
        for thread in threads:
            thread.join()
        return {key: self._done[key] for key in self._tasks}

    def _end(self, threads: list[threading.Thread]) -> None:
        with self._changed:
            self._unwanted = True
            self._changed.notify_all()
        started = [thread for thread in threads if thread.ident is not None]
        for thread in started:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(ENDED))
        for thread in started:
            thread.join()

    def _work(self) -> None:
        try:
            while (key := self._next()) is not None:
                result = self._tasks[key](partial(self._tell, key))
                with self._changed:
                    self._done[key] = result
                    self._changed.notify_all()
                self._news.put((key, None, None))
        except BaseException as error:
            if not (self._unwanted and isinstance(error, ENDED)):
                self._news.put((None, None, error))

    def _next(self) -> Key | None:
        """Wait for a task whose turn it is; None if there is none and will be none."""
        with self._changed:
            while self._waiting and not self._unwanted:
                for key in self._waiting:
                    if key not in self._needs or self._needs[key] in self._done:
                        self._waiting.remove(key)
                        return key
                self._changed.wait()
        return None

    def _tell(self, key: Key, fraction: float) -> None:
        if self._unwanted:
            raise ENDED
        self._news.put((key, fraction, None))
