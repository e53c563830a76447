"""Cost of the first run on a machine, which compiles RTL and loops, and of the next one."""

import os
import resource
import subprocess
import sys
import tempfile
import time

from t3sim.base.errors import Failure
from t3sim.study.results import FirstRun

#: The elaboration and the C++ compiler alone; then the loops, with and without RTL, and a small sub-layer.
_BUILD = ("from t3sim.cosim.gpu import gpu_design\nfrom t3sim.machine import load_machine\n"
          "import sys\ngpu_design(load_machine(sys.argv[1]).geometry())")
_RUN = "from t3sim.cli import main\nimport sys\nsys.exit(main(sys.argv[1:]))"
_SHAPE = ("--gemm", "1024x512x512", "--devices", "4")


def measure_first_run(machine: str) -> FirstRun:
    """Build the RTL of a machine (its name or file) in an empty cache, and run a small sub-layer there twice.

    Raises Failure if one of them fails.
    """
    run = (_RUN, "run", *_SHAPE, "--machine", machine)
    with tempfile.TemporaryDirectory(prefix="t3-first-") as cache:
        return FirstRun(*_seconds(cache, _BUILD, machine), *_seconds(cache, *run), *_seconds(cache, *run))


def _seconds(cache: str, *program: str) -> tuple[float, float]:
    """Run a program of Python with a cache; return the processor seconds, of what it starts too, and those passed."""
    def processor() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    # Our own loops' folder is in the environment, too; a program that is not told of one finds its own.
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    before, start = processor(), time.perf_counter()
    process = subprocess.run([sys.executable, "-c", *program], env=environment | {"T3_CACHE": cache}, check=False,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        raise Failure(f"the first run failed: {(process.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return processor() - before, time.perf_counter() - start
