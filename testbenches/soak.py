"""Groups of GPUs drawn at random, each checked bit for bit: `make soak MINUTES=10`.

A case is drawn from one number: collective, algorithm and links (`exchanges.py`; half of the cases are ring
reduce-scatters), geometry (a pool, so that few designs are compiled), machine, GEMM, in how many parts its K is, the
format of its elements, number of GPUs, policy, staging of the first chunk, slices, which tiles have ids and in which
order each GPU dispatches them, held-back handshakes, link delays, late starts, a DRAM controller that lets reads pass.
Data mode (`t3sim.runs.data_mode`) decides: every element of every GPU's memory, and how often it was accessed.
"""

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from t3sim.base.errors import Failure
from t3sim.base.output import write_json
from t3sim.collectives.schedule import Ids, Limits, ScheduleError, Shuffle
from t3sim.collectives.schedule.sums import window_for_sums
from t3sim.cosim.driver.driver import Driver, DriverError
from t3sim.machine import Machine, load_machine
from t3sim.machine.formats import FORMATS
from t3sim.rtl.registers import POLICIES
from t3sim.runs.address_space import map_output
from t3sim.runs.build import late_starts
from t3sim.runs.data_mode import DataResult, Variation, run_data_mode
from t3sim.runs.exchange import IN_SWITCH, fused_with
from t3sim.runs.plan import Plan, Policy
from t3sim.testbenches.exchanges import Exchange, exchanges
from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.workloads import gemm_workload

ROOT = Path(__file__).resolve().parents[1]
MACHINES = ROOT / "tests" / "data" / "machines"
POOL = tuple(sorted(path.stem for path in MACHINES.glob("ring_*.toml")))  #: a geometry each
READY = tuple(sorted(path.stem for path in MACHINES.glob("ready_*.toml")))  #: for a gather before the GEMM
PEERS = tuple(sorted(path.stem for path in MACHINES.glob("peers_*.toml")))  #: for GPUs that send to several others
RINGS = tuple(Exchange("rs", "ring", f"ring:{gpus}") for gpus in (2, 3, 4, 8))  #: each second case is one of them
_BEFORE = fused_with("ag-gemm")
_ATTEMPTS = 20  #: at an output of any size, before one of equal chunks is taken; and at a case
_TELL_SECONDS = 30
REPORT = ROOT / "build" / "reports" / "soak.json"


@dataclass(frozen=True)
class Case:
    """One group of GPUs; `seed` alone says all the rest."""

    seed: int
    pool: str  #: the machine's geometry, of POOL, PEERS or READY
    exchange: Exchange
    plan: Plan
    policy: Policy
    variation: Variation

    def run(self) -> DataResult:
        """Run it. Raises what `run_data_mode` does."""
        return run_data_mode(self.plan, self.policy, self.variation)

    @property
    def repeat_command(self) -> str:
        return f"make soak SEED={self.seed} CASES=1"

    def __str__(self) -> str:
        w, m = self.plan.workload, self.plan.machine
        return (f"case {self.seed}: {self.exchange}, {self.pool}, {w.tp} GPUs, {w.m}x{w.n}x{w.k} {w.dtype}, "
                f"{self.policy}, {self.plan}, {self.variation}, gpu {m.gpu.tile_m}x{m.gpu.tile_n}, "
                f"{m.gpu.compute_units} CUs, block_k {m.gpu.block_k}, split_k {m.gpu.k_parts}, "
                f"link {m.link.bandwidth_gb_per_s} GB/s "
                f"{m.link.latency_ns} ns {m.link.egress_buffer_bytes} B, {m.dma.tiles_per_block} tiles per block, "
                f"starvation limit {m.starvation_limit_cycles}")


@cache
def _described(name: str) -> Machine:
    return load_machine(MACHINES / f"{name}.toml")


def machine(name: str, **changes: dict) -> Machine:
    """Load a machine of tests/data/machines with keys changed: `link={"latency_ns": 1.0}`."""
    content = _described(name).model_dump()
    for section, keys in changes.items():
        assert content[section] is None or keys.keys() <= content[section].keys()
        content[section] = (content[section] or {}) | keys
    return Machine.model_validate(content)


def window_of(described: Machine, waits_for: int | None = None) -> int:
    geometry = described.geometry()
    return Driver(geometry).largest_window(
        min(geometry.tracker.ways, described.gpu.wavefronts_per_workgroup), waits_for)


def fits(plan: Plan) -> bool:
    """Say whether there is a lawful schedule.

    It must be causal, its slack smaller than the dispatch window, and no larger than the hardware's tables.
    """
    described, workload = plan.machine, plan.workload
    try:
        if plan.gathers and _BEFORE.hardware(described, workload) != described:
            return False
        schedule, driver = plan.schedule, Driver(described.geometry())
        windows = [window_of(described, schedule.waits_for(device)) for device in range(workload.tp)]
        if schedule.program.in_switch and not described.switch.rtl:
            windows = [window_for_sums(schedule, min(windows), described.switch.hardware().merge_bytes)]
        if schedule.slack >= min(windows) or not schedule.is_live(min(windows)):
            return False
        for device in range(workload.tp):
            map_output(schedule, device, [0] * workload.tp, described.geometry(),
                       described.dma.tiles_per_block).program(driver)
    except (TilingError, ScheduleError):
        return False
    except DriverError as error:
        if "has no room for it" not in str(error):
            raise
        return False
    return True


def pools_of(exchange: Exchange) -> tuple[str, ...]:
    """Return the geometries that have what a collective needs; a ring reduce-scatter needs fewest regions."""
    if exchange in RINGS:
        return POOL
    if exchange.before:
        return READY
    pool = POOL if exchange.peers == 1 else PEERS
    return tuple(name for name in pool if (dma := machine(name).dma).peers >= exchange.peers and dma.regions >= 64
                 and dma.copies >= exchange.copies)


def draw(seed: int, exchange: Exchange | None = None) -> Case:
    """Draw anything that has to work, of `exchange` if it is given."""
    rng = np.random.default_rng(seed)
    for _ in range(_ATTEMPTS):
        among = exchanges() if rng.integers(2) else RINGS
        if case := _attempt(seed, rng, exchange or among[rng.integers(len(among))]):
            return case
    raise AssertionError(f"seed {seed}: nothing fits {exchange or 'any collective'}")


def _attempt(seed: int, rng: np.random.Generator, exchange: Exchange) -> Case | None:
    """Draw a case of a collective; None if it does not fit."""
    def pick(*values):
        return values[rng.integers(len(values))]
    pool, dtype = pick(*pools_of(exchange)), pick(*FORMATS)
    devices = exchange.topology().gpus
    gpu = machine(pool).gpu
    tile_m = pick(gpu.tile_m, 32, 96)
    starvation = pick(0, 1, 16, 400)
    column_bytes = tile_m * FORMATS[dtype].bytes
    described = machine(
        pool,
        gpu={"tile_m": tile_m, "compute_units": int(rng.integers(1, 9)), "block_k": pick(16, 64)},
        link={"bandwidth_gb_per_s": pick(1.0, 8.0, 30.0, 200.0), "latency_ns": pick(0.0, 30.0, 700.0),
              "egress_buffer_bytes": max(pick(column_bytes, 1024, 65536), column_bytes)},
        dma={"tiles_per_block": pick(*(2**i for i in range(4) if gpu.wavefronts_per_workgroup % 2**i == 0))},
        arbiter={"starvation_limit_cycles": starvation},
        switch=pick({"merge_sets": 64}, {"merge_sets": 4096}, {"merge_sets": 8, "rtl": True}) if (
            exchange.algorithm == IN_SWITCH) else {})
    order = dict(stage_first_chunk=pick(False, True), slices=pick(1, 2, 3),
                 limits=pick(*Limits) if exchange.peers == 1 else Limits.EXACT,
                 collective=exchange.program, topology=exchange.topology)
    if exchange.before:
        order |= dict(stage_first_chunk=False, slices=1, limits=Limits.EXACT, ids=Ids.TRACKED, gathers=True)
    elif pick(False, True):  # an order of dispatch that is not that of the ids
        shuffle = pick(None, Shuffle(int(rng.integers(1, max(2, window_of(described) // 2))), seed))
        order |= dict(ids=pick(*Ids), limits=Limits.EXACT, shuffle=shuffle)
    if (plan := _draw_plan(rng, described, exchange, order, devices, dtype)) is None:
        return None
    plan = _in_parts(seed, plan, exchange)
    policy = Policy(pick(*POLICIES), pick("auto", None, 1, 3, 10))
    plan = replace(plan, seed=seed, hold_back=pick(0.0, 0.05, 0.5), link_jitter_cycles=pick(0, 20, 1000),
                   start_cycles=late_starts(devices, pick(0, 100, 5000), seed))
    return Case(seed, pool, exchange, plan, policy, Variation(overtaking_reads=pick(False, True)))


def _in_parts(seed: int, plan: Plan, exchange: Exchange) -> Plan:
    """Cut K of every second GEMM whose products are added into parts, as far as its steps and the hardware allow."""
    if exchange.before or exchange.collective not in ("rs", "ar") or exchange.algorithm == IN_SWITCH:
        return plan
    gpu = plan.machine.gpu
    rng, steps = np.random.default_rng((seed, gpu.block_k)), -(-plan.workload.k // gpu.block_k)
    parts = min(int(rng.choice((1, 1, 1, 2, 3, 5))), steps)
    split = replace(plan, machine=plan.machine.model_copy(update={"gpu": gpu.model_copy(update={"k_parts": parts})}))
    return split if fits(split) else plan


def _draw_plan(rng: np.random.Generator, described: Machine, exchange: Exchange, order: dict, devices: int,
               dtype: str) -> Plan | None:
    """Draw a GEMM that fits; after some attempts one whose chunks have as many tiles each. None: it does not fit.

    Every fourth is one of few tiles, so that some chunks are empty.
    """
    gpu, chunks = described.gpu, exchange.program().chunks
    largest = (2 * gpu.tile_n, 2 * gpu.tile_m) if rng.integers(4) == 0 else (6 * gpu.tile_m, 9 * gpu.tile_n)
    for attempt in range(_ATTEMPTS + 2):
        m, n, k = (rng.integers(1, limit) for limit in (*largest, 600 if exchange.before else 100))
        if attempt >= _ATTEMPTS:
            m, n = gpu.tile_n * chunks * order["slices"], gpu.tile_m
        plan = Plan(described, gemm_workload(f"{m}x{n}x{k}", devices, dtype), **order)
        if fits(plan):
            return plan
    return None


@dataclass
class Tally:
    """Tally of a campaign so far."""

    cases: int = 0  #: that ended, well or not
    elements: int = 0  #: reduced and compared
    cycles: int = 0  #: memory cycles of whole groups
    drawn: dict[str, Counter] = field(default_factory=lambda: {
        name: Counter() for name in ("collective", "geometry", "policy", "devices", "dtype", "stage_first_chunk", "ids",
                                     "order", "split_k")})
    failures: list[dict[str, str | int]] = field(default_factory=list)
    interrupted: bool = False

    def note(self, case: Case) -> None:
        for name, value in (("collective", str(case.exchange).replace(f" over {case.exchange.over}", "")),
                            ("geometry", case.pool), ("policy", case.policy.name), ("devices", case.plan.workload.tp),
                            ("dtype", case.plan.workload.dtype), ("stage_first_chunk", case.plan.stage_first_chunk),
                            ("ids", case.plan.ids.value),
                            ("split_k", case.plan.machine.gpu.k_parts),
                            ("order", "shuffled" if case.plan.shuffle else "as the ids")):
            self.drawn[name][str(value)] += 1


def soak(cases: Iterable[Case], tell: Callable[[str], None], until: float = float("inf")) -> Tally:
    """Run cases one after the other, as long as `time.monotonic()` is below `until`.

    A failure does not end it, Ctrl-C does. `tell` gets a line for each failure, and one every half minute.
    """
    tally, told = Tally(), time.monotonic()
    try:
        for case in cases:
            try:
                result = case.run()
            except Exception as error:  # whatever it is: a case that was drawn has to work
                what = str(error) if isinstance(error, Failure) else traceback.format_exc()
                tally.failures.append({"seed": case.seed, "case": str(case), "error": what,
                                       "repeat": case.repeat_command})
                tell(f"FAILED: {case}\n{what}\nRepeat with: {case.repeat_command}")
            else:
                tally.elements += result.elements
                tally.cycles += result.cycles
            tally.cases += 1
            tally.note(case)
            if time.monotonic() > told + _TELL_SECONDS:
                told = time.monotonic()
                tell(f"{tally.cases} groups of GPUs, {len(tally.failures)} failed, last seed {case.seed}")
            if time.monotonic() >= until:
                break
    except KeyboardInterrupt:
        tally.interrupted = True
    return tally


def draws(first_seed: int) -> Iterator[Case]:
    return map(draw, count(first_seed))


def main(
    minutes: Annotated[float, typer.Option(min=0.01, help="how long; the last case is finished")] = 10.0,
    cases: Annotated[int | None, typer.Option(min=1, help="at most this many cases")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the first case, the others count up; drawn without it")]
    = None,
) -> None:
    """Run GPUs with a collective drawn at random and compare every bit with numpy."""
    console = Console(highlight=False, soft_wrap=True)
    first = random.SystemRandom().randrange(1 << 40) if seed is None else seed
    start = time.monotonic()
    console.print(f"first seed {first}", markup=False)
    tally = soak(islice(draws(first), cases), lambda line: console.print(line, markup=False), start + 60 * minutes)
    seconds = time.monotonic() - start
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    write_json({"first_seed": first, "seconds": round(seconds, 1), **vars(tally)}, str(REPORT))
    console.print(f"{tally.cases} groups of GPUs run (seeds {first} to {first + tally.cases - 1}), "
                  f"{len(tally.failures)} failed: {tally.elements:,} elements equal numpy's, {tally.cycles:,} cycles, "
                  f"{seconds:.0f} s{', interrupted' if tally.interrupted else ''}; {REPORT.relative_to(ROOT)}",
                  markup=False)
    if tally.failures:
        sys.exit(1)
    if tally.interrupted:
        sys.exit(130)


if __name__ == "__main__":
    typer.run(main)
