"""Runs testbenches: `python -m t3sim.testbenches.run_blocks tracker --seed 7 --waves`, or `make cocotb`."""

import argparse
import ast
import importlib.util
import random
import shutil
import sys
import time
from pathlib import Path

from t3sim.base.errors import Failure
from t3sim.base.extras import install_line
from t3sim.cosim.cocotb_run import DUMP
from t3sim.cosim.testbench import BLOCKS, Testbench, run_testbench
from t3sim.testbenches.command_line import block_parser, chosen_blocks
from t3sim.testbenches.dump import name_signals
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.trace.testbench import explain_failure

ROOT = Path(__file__).resolve().parents[1]
_RUNS = ROOT / "build" / "cocotb"
_HALF_AN_HOUR_S = 1800


def repeat_command(block: str, seed: int, options: argparse.Namespace) -> str:
    """Write the shell command that runs the same stimulus again."""
    given = "".join(f" {name}={value}" for name, value, usual in (
        ("GEOMETRY", options.geometry, "small"), ("SIM", options.sim, "verilator"), ("LENGTH", options.length, 1),
        ("ROUNDS", options.rounds, None), ("TEST", options.test, None)) if value != usual)
    return f"make cocotb BLOCK={block} SEED={seed}{given}"


def tests_of(block: str) -> list[str]:
    """Return the names of a block's tests."""
    functions = ast.parse((ROOT / "testbenches" / f"tb_{block}.py").read_text(encoding="utf-8")).body
    return [function.name for function in functions
            if isinstance(function, ast.AsyncFunctionDef) and function.decorator_list]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 if all passed."""
    parser = block_parser("t3sim.testbenches.run_blocks", __doc__, BLOCKS)
    parser.add_argument("--seed", type=int, help="of the random stimulus; drawn without it")
    parser.add_argument("--geometry", choices=GEOMETRIES, default="small")
    parser.add_argument("--sim", choices=("verilator", "icarus"), default="verilator")
    parser.add_argument("--length", type=int, default=1, help="multiplies the rounds of random traffic")
    parser.add_argument("--rounds", type=int, help="of each test, rather than as many as it asks for")
    parser.add_argument("--test", help="one test of the testbench")
    parser.add_argument("--waves", nargs="?", const="vcd", choices=("vcd", "fst"),
                        help="write dump.vcd or dump.fst beside the log")
    options = parser.parse_args(arguments)
    blocks = chosen_blocks(parser, options, BLOCKS)
    if options.test is not None:
        tests = {block: tests_of(block) for block in blocks}
        blocks = [block for block in blocks if options.test in tests[block]]
        if not blocks:
            known = "; ".join(f"{block}: {', '.join(names)}" for block, names in tests.items())
            parser.error(f"there is no test {options.test!r}; the tests are {known}")
    if options.length < 1:
        parser.error("--length must be at least 1")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.waves == "fst" and importlib.util.find_spec("pylibfst") is None:
        parser.error(f"--waves fst: pylibfst is missing: {install_line('pylibfst')}")
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    failed = 0
    for block in blocks:
        folder = _RUNS / f"{block}-{options.geometry}-{options.sim}"
        shutil.rmtree(folder, ignore_errors=True)
        start = time.monotonic()
        try:
            tests = run_testbench(Testbench(block, GEOMETRIES[options.geometry], seed, options.sim, options.length,
                                            _HALF_AN_HOUR_S * options.length, options.rounds),
                                  folder, waves=options.waves is not None, testcase=options.test,
                                  explain=explain_failure)
        except Failure as failure:
            failed += 1
            print(f"{block}: FAILED with seed {seed}\n{failure}\nRepeat with: "
                  f"{repeat_command(block, seed, options)}", flush=True)
        else:
            print(f"{block}: {tests} tests passed with seed {seed} in {time.monotonic() - start:.1f} s, "
                  f"log in {folder}", flush=True)
        dump = folder / DUMP
        if options.waves and dump.exists():  # of a test that fails, too
            name_signals(dump)
            if options.waves == "fst":
                from t3sim.rtlsim.fst import to_fst

                to_fst(dump, dump.with_suffix(".fst"))
                dump.unlink()
            print(f"{block}: waveforms in {dump.with_suffix('.' + options.waves)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
