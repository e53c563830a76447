"""Every pair of 16-bit operands through the compiled near-memory ALU, against numpy.

`make alu-exhaustive` adds all 2**32 ordered fp16 pairs, 16 per cycle. One row is one `old` operand a
with all 65,536 `new` operands b. The half with (b - a) mod 2**16 < 2**15 goes through the low lanes (shared with fp32),
the other through the high lanes; so (a, b) and (b, a) meet different lanes, and each unordered pair both kinds, except
where b - a is 0 or 2**15. Where numpy has any NaN, the hardware must give its one quiet NaN.

`--dtype bf16` does the same for bf16. `--dtype fp32` has too many pairs and takes random ones, with exponents close
enough to interact.
"""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from t3sim.base.errors import Failure
from t3sim.cosim.nmc_alu import DTYPES, CompiledAlu
from t3sim.machine.formats import FORMATS

SLICES = CompiledAlu.COLUMN_BYTES // 4
OPERANDS = 1 << 16
FP32_SEEDS = 4096
ROWS_PER_TASK = 32
_HALF = OPERANDS // 2
#: Word k pairs operand k (low lane) with k + 2**15 (high lane); long enough to start a row anywhere.
_PAIRED = np.arange(OPERANDS + _HALF, dtype=np.uint32) % OPERANDS
_PAIRED |= (_PAIRED ^ _HALF) << 16


def check_row(alu: CompiledAlu, a: int, dtype: str):
    """Return the first mismatch of `a` and any operand, as (old, new, expected, got, lane); or None."""
    new = _PAIRED[a:a + _HALF]
    alu.load(new.reshape(-1, SLICES), dtype)
    got = alu.run(np.full(SLICES, a | a << 16, np.uint32)).view(np.uint16)
    operands = new.view(np.uint16)
    expected = FORMATS[dtype].add(np.uint16([a]), operands)
    wrong = np.flatnonzero(got.ravel() != expected)
    if not len(wrong):
        return None
    first = int(wrong[0])
    return a, int(operands[first]), int(expected[first]), int(got.ravel()[first]), ("low", "high")[first % 2]


def check_fp32(alu: CompiledAlu, seed: int):
    """Return the first mismatch among random fp32 pairs, or None.

    Their exponents mostly lie within reach of each other.
    """
    random = np.random.default_rng(seed)
    a, b, cut_a, cut_b = random.integers(0, 1 << 32, (4, OPERANDS), dtype=np.uint32)
    near = (a >> 23 & 0xFF).astype(np.int64) + random.integers(-30, 31, OPERANDS)
    b = b & 0x807FFFFF | near.clip(0, 255).astype(np.uint32) << 23
    # Sparse fractions make ties and exact cancellation common.
    sparse = random.random(OPERANDS) < 0.5
    a[sparse] &= cut_a[sparse] & 0x00F00007 | 0xFF800000
    b[sparse] &= cut_b[sparse] & 0x00F00007 | 0xFF800000
    alu.load(b.reshape(-1, SLICES), "fp32")
    got = alu.run(a.reshape(-1, SLICES)).ravel()
    expected = FORMATS["fp32"].add(a, b)
    wrong = np.flatnonzero(got != expected)
    if not len(wrong):
        return None
    first = int(wrong[0])
    return int(a[first]), int(b[first]), int(expected[first]), int(got[first]), "low"


_alu: CompiledAlu  # one per worker process


def _start_worker() -> None:
    global _alu
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    _alu = CompiledAlu()


def _work(task):
    dtype, rows = task
    before = _alu.cycles
    for done, row in enumerate(rows):
        failure = check_fp32(_alu, row) if dtype == "fp32" else check_row(_alu, row, dtype)
        if failure:
            return done, _alu.cycles - before, failure
    return len(rows), _alu.cycles - before, None


def check(rows, dtype: str = "fp16", jobs: int | None = None,
          advance: Callable[[int], None] = lambda count: None) -> dict:
    """Check the rows (fp32: seeds) and return a summary. Stops at the first mismatch in the order of `rows`."""
    rows = [int(row) for row in rows]
    size = max(1, min(ROWS_PER_TASK, len(rows) // 8))
    tasks = [(dtype, rows[start:start + size]) for start in range(0, len(rows), size)]
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(tasks))
    start, done, cycles, failure = time.monotonic(), 0, 0, None
    # Leaving the block terminates the workers, whatever they do.
    with multiprocessing.get_context("spawn").Pool(jobs, _start_worker) as pool:
        for count, used, failure in pool.imap(_work, tasks):
            done += count
            cycles += used
            advance(count)
            if failure:
                break
    summary = {
        "dtype": dtype,
        "rows": done,
        "pairs": done * OPERANDS,
        "exhaustive": failure is None and dtype != "fp32" and len(set(rows)) == OPERANDS,
        "cycles": cycles,
        "seconds": round(time.monotonic() - start, 2),
        "jobs": jobs,
        "mismatch": None,
    }
    if failure:
        digits = 8 if dtype == "fp32" else 4
        values = zip(("old", "new", "expected", "got"), failure)
        summary["mismatch"] = {name: f"0x{bits:0{digits}x}" for name, bits in values} | {"lane": failure[4]}
    return summary


def choose_rows(dtype: str, rows: int | None, sample: int | None, seed: int):
    """Choose all rows, the first few of an even spread, or random ones with zeros, an infinity and a subnormal."""
    total = FP32_SEEDS if dtype == "fp32" else OPERANDS
    if rows is not None:
        rows = min(rows, total)
        return [index * total // rows for index in range(rows)]
    if sample is None:
        return range(total)
    sample = min(sample, total)
    picked = np.random.default_rng(seed).permutation(total).tolist()
    if dtype != "fp32":
        picked = [0x0000, 0x8000, 0x0001, FORMATS[dtype].infinity, *picked]
    return list(dict.fromkeys(picked))[:sample]


def main(
    dtype: Annotated[str, typer.Option(help="fp16, bf16 or fp32 (fp32: 4096 seeds of 65,536 pairs each)")] = "fp16",
    rows: Annotated[int | None, typer.Option(min=1, max=OPERANDS, help="only this many rows, evenly spread")] = None,
    sample: Annotated[int | None, typer.Option(min=1, max=OPERANDS, help="only this many random rows")] = None,
    seed: Annotated[int, typer.Option(help="of --sample")] = 1,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; default: one per core")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON, nothing else, on stdout")] = False,
) -> None:
    """Add every fp16 pair on the compiled near-memory ALU and compare with numpy."""
    console = Console(stderr=True)
    if dtype not in DTYPES:
        console.print(f"dtype {dtype!r} is impossible: fp16, bf16 or fp32 is needed")
        raise typer.Exit(2)
    chosen = choose_rows(dtype, rows, sample, seed)
    try:
        with console.status("compiling the ALU"):
            CompiledAlu()  # fills the cache for the workers
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(f"{dtype} rows of 65,536 pairs", total=len(chosen))
            summary = check(chosen, dtype, jobs, lambda count: progress.advance(bar, count))
    except Failure as failure:
        console.print(str(failure))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print("interrupted")
        raise typer.Exit(130) from None
    wrong = summary["mismatch"]
    if as_json:
        print(json.dumps(summary))
    else:
        scope = "all pairs" if summary["exhaustive"] else "a sample"
        console.print(f"{summary['pairs']:,} {dtype} pairs ({scope}) in {summary['seconds']} s, "
                      f"{summary['cycles']:,} cycles: {'MISMATCH' if wrong else 'all equal numpy'}")
    if wrong:
        console.print(f"{wrong['old']} + {wrong['new']}: expected {wrong['expected']}, "
                      f"got {wrong['got']} ({wrong['lane']} lane)")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
