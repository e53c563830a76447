"""Tasks on threads: each once, in order where one needs another, and none is left behind when something ends them."""

import threading
import time

import numpy as np
import pytest
from numba import njit

from t3sim.base.at_once import ENDED, at_once
from t3sim.base.compiled.jit import compile_times

pytestmark = pytest.mark.builds_loops


def quiet(*_) -> None:
    pass


@pytest.mark.parametrize("threads", [1, 2, 3, 50])
def test_every_task_once_and_results_in_order(threads):
    told, began = [], []

    def task(number):
        def run(progress):
            began.append(number)
            progress(0.5)
            time.sleep(0.001 * (7 - number % 7))
            return number * number
        return run
    found = at_once({number: task(number) for number in range(20)}, threads, lambda *news: told.append(news))
    assert list(found.items()) == [(number, number * number) for number in range(20)]
    assert sorted(began) == list(range(20))
    for number in range(20):
        assert [share for key, share in told if key == number] == [0.5, 1.0]


def test_tasks_run_at_the_same_time():
    meet = threading.Barrier(3, timeout=20)
    assert at_once({name: lambda _: meet.wait() >= 0 for name in "abc"}, 3, quiet) == dict.fromkeys("abc", True)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_what_needs_another_begins_after_it(threads):
    log = []

    def task(name, seconds):
        def run(_):
            log.append(f"{name} begins")
            time.sleep(seconds)
            log.append(f"{name} ends")
        return run
    at_once({"build": task("build", 0.1), "run": task("run", 0), "alone": task("alone", 0), "more": task("more", 0)},
            threads, quiet, {"run": "build", "more": "run"})
    assert log.index("build ends") < log.index("run begins") < log.index("run ends") < log.index("more begins")
    assert threads == 1 or log.index("alone ends") < log.index("build ends"), "it need not wait"


def goes_on(began):
    """A task that ends only if it is told to, at the next word of how far it is."""
    def run(progress):
        began.set()
        while True:
            progress(0.1)
            time.sleep(0.001)
    return run


def waits(progress):
    """A task that says nothing: it is ended in Python, wherever it is."""
    while True:
        time.sleep(0.001)


def test_an_error_ends_the_others():
    began = threading.Event()

    def fails(_):
        began.wait(20)
        raise ValueError("this one")
    before = threading.active_count()
    with pytest.raises(ValueError, match="this one"):
        at_once({"a": goes_on(began), "b": fails, "c": waits, "never": lambda _: began.clear()}, 3, quiet)
    assert threading.active_count() == before and began.is_set()


def test_an_interrupt_ends_all(capfd):
    before = threading.active_count()

    def interrupted(*_):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        at_once({"a": goes_on(threading.Event()), "b": waits}, 2, interrupted)
    assert threading.active_count() == before
    assert capfd.readouterr() == ("", ""), "threads end without a word"


def test_each_thread_counts_its_own_compilations():
    """Threads that wait for numba's lock, or that compile nothing, have compiled nothing."""
    def task(size):
        def run(_):
            with compile_times() as seconds:
                started = time.thread_time()
                for number in range(size):
                    njit(lambda values, by=number: np.sort(values).sum() + by)(np.arange(3))
                return seconds, time.thread_time() - started
        return run
    found = at_once({size: task(size) for size in (0, 1, 3)}, 3, quiet)
    assert [len(seconds) for seconds, _ in found.values()] == [0, 1, 3]
    for seconds, spent in found.values():
        assert sum(seconds) <= spent


def test_a_task_that_is_ended_wherever_it_is_prints_nothing(capsys):
    """The end may meet a thread where nothing catches it, in the handler of an error: Python's own hook is silent."""
    threading.__excepthook__(threading.ExceptHookArgs((ENDED, ENDED(), None, threading.current_thread())))
    assert capsys.readouterr().err == ""


def test_a_task_that_ends_the_program_is_heard():
    def leave(tell) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        at_once({1: leave, 2: lambda tell: None}, 2, lambda key, fraction: None)
