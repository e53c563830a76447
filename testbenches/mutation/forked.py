"""A cocotb test that runs a testbench once per mutant: each in a process forked from the simulator that has started.

The folder named by $T3_MUTANTS holds `job.json`: the testbench's module, the mutants' numbers, the seeds, how many
processes may run at once. Each mutant leaves `<number>.json`: the first test that failed, and how, or null; `ended`: a
test was ended by time.
"""

import contextlib
import importlib
import json
import os
import random
import resource
import signal
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

_LEAST_LIMIT_S, _PATIENCE = 20, 20  #: of processor time; times that of the block without a mutant


@cocotb.test()
async def every_mutant(dut) -> None:
    folder = Path(os.environ["T3_MUTANTS"])
    job = json.loads((folder / "job.json").read_text())
    module = importlib.import_module(job["testbench"])
    tests = [test for test in vars(module).values() if isinstance(test, type(every_mutant)) and not test.skip]
    waiting, running, limit_s = [0, *job["mutants"]], {}, 0
    while waiting or running:
        # The first is the block as it is: everything that its tests say about mutants rests on their passing here.
        while waiting and len(running) < (job["processes"] if limit_s else 1):
            number = waiting.pop(0)
            process = os.fork()
            if process == 0:
                await _be(dut, number, tests, job["seeds"], folder, limit_s)
            running[process] = number
        process, status, used = os.wait4(-1, 0)
        number = running.pop(process)
        if status:  # neither passed nor failed
            name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(
                status)
            if name == "SIGXCPU":
                _tell(folder, number, {"test": None, "how": f"{limit_s} s of processor time", "ended": True})
            else:
                _tell(folder, number, {"test": "simulation", "how": f"simulator ended: {name}"})
        if number == 0:
            told = json.loads((folder / "0.json").read_text())
            assert told["test"] is None, f"the unchanged block fails {told['test']}: {told['how']}"
            limit_s = max(_LEAST_LIMIT_S, int(_PATIENCE * (used.ru_utime + used.ru_stime)))


async def _be(dut, number: int, tests, seeds: list[int], folder: Path, limit_s: int) -> None:
    """Be a mutant and run its tests. Ends the process."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    if limit_s:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    told = {"test": None, "how": ""}
    with contextlib.suppress(BaseException):
        dut.mutant.value = number
        await Timer(1, "ps")
        for seed in seeds:
            for test in tests:
                random.seed(f"{seed} {test.name}")
                try:
                    await test.func(dut)
                except BaseException as error:
                    first = str(error).splitlines()[:1]
                    _tell(folder, number, {"test": test.name, "how": ": ".join([type(error).__name__, *first]),
                                           "seed": seed})
                    os._exit(0)
        _tell(folder, number, told)
        os._exit(0)
    os._exit(1)


def _tell(folder: Path, number: int, told: dict) -> None:
    partial = folder / f"{number}.{os.getpid()}.partial"
    partial.write_text(json.dumps(told))
    partial.replace(folder / f"{number}.json")
