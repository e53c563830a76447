"""Our DRAM model against DRAMsim3 and Ramulator 2 on recorded traces (`recorded`).

Two of our schedulers run with the same timing: `dramsim3`, which decides as DRAMsim3 does, so that what is left is a
difference of timing, and the `fr_fcfs` of the machine `t3-table1`, which the rest of the project uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from t3sim.base.errors import BadInput
from t3sim.gpu.hbm.address import line_of
from t3sim.gpu.hbm.state import commands
from t3sim.machine import load_machine
from t3sim.machine.dram import Dram
from t3sim.testbenches.hbm_replay import recorded
from t3sim.testbenches.hbm_replay.configurations import RECORDED, configured
from t3sim.testbenches.hbm_replay.replay import replay, replay_trace
from t3sim.testbenches.hbm_replay.trace import Trace

TIMING, LOAD, SCHEDULING = "timing-bound", "load", "scheduling-bound"
GROUPS = (TIMING, LOAD, SCHEDULING)

#: Two simulators with equal timing that differ by more in their finishing time differ in scheduling.
AGREEMENT = 0.013

#: Requests per second on one core of this kind of machine, DRAMsim3's fastest: streaming, random traces.
DRAMSIM3_SPEED = {"seq": 670_000, "rand": 113_000}

_CONTROLLER = ("queue_entries", "write_high_watermark", "write_low_watermark", "write_wait_limit_cycles",
               "row_hit_limit")


@dataclass(frozen=True)
class Outcome:
    """Result of one simulator on one trace."""

    cycles: int  #: from cycle 0 to the end of the last data burst
    read_latency_cycles: float | None  #: mean, from acceptance to the end of data; None without reads
    activates: int
    refreshes: int
    requests_per_second: float | None = None  #: of the host's processor time; None where not recorded

    def difference(self, other: Outcome, what: str = "cycles") -> float:
        """Return the relative difference from `other`; 0 where neither has a value."""
        ours, theirs = getattr(self, what), getattr(other, what)
        return ours / theirs - 1 if theirs else 0.0


@dataclass(frozen=True)
class ValidationRow:
    """One workload in one configuration."""

    workload: str
    config: str
    held_out: bool  #: not looked at before the model was finished
    kind: str  #: of the trace, as in recorded/workloads.json
    group: str  #: one of `GROUPS`
    requests: int
    saturated: bool  #: DRAMsim3 finished later than the trace's own pace asks for
    ours: Outcome  #: scheduler `dramsim3`
    fr_fcfs: Outcome  #: scheduler of t3-table1
    dramsim3: Outcome
    ramulator2: dict[str, Outcome]  #: by scheduler and depth of the queue

    @property
    def nearest(self) -> str:
        """The recorded simulator (R2 = Ramulator 2) whose finishing time is nearest to that of our `fr_fcfs`."""
        every = {"DRAMsim3": self.dramsim3, **{f"R2 {name}": one for name, one in self.ramulator2.items()}}
        return min(every, key=lambda name: abs(self.fr_fcfs.difference(every[name])))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.ours.difference(self.dramsim3),
                "fr_fcfs_difference": self.fr_fcfs.difference(self.dramsim3), "nearest": self.nearest}


@dataclass(frozen=True)
class MicroRow:
    """A few requests, compared command by command: cycle, command and bank."""

    case: str
    config: str
    commands: int  #: of DRAMsim3
    equal: bool  #: ours (`dramsim3`) are the same commands in the same cycles
    agreed: bool  #: both simulators issue the same commands, Ramulator one cycle sooner (its front end)
    fr_fcfs_equal: bool  #: our `fr_fcfs` issues those of Ramulator

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """One target: the worst case and whether it is within the limit."""

    target: str
    cases: int  #: how many it is about
    worst: float
    limit: float
    where: str  #: the worst case
    met: bool
    unit: str  #: %, refreshes, M requests/s, cases

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_SHAPES = {"hbm2": {"row_bytes": 2048, "column_bytes": 64}, "hbm3": {"row_bytes": 1024, "column_bytes": 32}}


def recorded_memory(dram: Dram) -> str:
    """Return which of `recorded.MEMORIES` this is; BadInput unless its traces mean what they say on it."""
    memory = next((name for name, shape in _SHAPES.items() if dram.column_bytes == shape["column_bytes"]), "hbm2")
    wanted = {"bank_groups": 4, "banks_per_group": 4, "stack_ids": 1, "rows_per_bank": 32768, "bank_hash": False,
              "scheduler": "dramsim3", **_SHAPES[memory]}
    for name, value in wanted.items():
        if getattr(dram, name) != value:
            raise BadInput(f"[dram] {name} = {getattr(dram, name)}: the recorded results are for {name} = {value}, "
                           f"as in the machine {memory}-reference")
    return memory


def with_fr_fcfs(dram: Dram) -> Dram:
    """Return the same memory with the controller of t3-table1."""
    usual = load_machine().dram
    return dram.by_column.model_copy(update={**{name: getattr(usual, name) for name in _CONTROLLER}})


def _recorded(counts: dict[str, Any]) -> Outcome:
    return Outcome(counts["cycles"], counts["read_latency_cycles"], counts["activates"], counts["refreshes"])


def _measured(trace: Trace, dram: Dram) -> Outcome:
    result = replay(trace, dram)
    return Outcome(result.cycles, result.mean_read_latency_cycles if result.reads else None, result.activates,
                   result.refreshes, result.requests_per_second)


def _group(workload: dict[str, Any], dramsim3: dict[str, Any], ramulator2: dict[str, dict[str, Any]]) -> str:
    """Tell workloads in which scheduling rather than timing decides from the others.

    They have read and write phases or streams that compete for rows, unless paced; and those in which the simulators
    differ belong to them, too. Deep queues that merged writes did other work and do not count.
    """
    columns = dramsim3["reads"] + dramsim3["writes"]
    apart = max((abs(one["cycles"] / dramsim3["cycles"] - 1) for one in ramulator2.values()
                 if one["reads"] + one["writes"] > 0.99 * columns), default=0.0)
    mixed = workload["kind"] in ("gemm", "dual", "pingpong") and not workload.get("read_gap")
    if mixed or apart > AGREEMENT:
        return SCHEDULING
    return LOAD if workload["kind"] == "load" else TIMING


def validate(dram: Dram, configs: Iterable[str] | None = None, workloads: Iterable[str] | None = None,
             progress: Callable[[float], None] | None = None) -> list[ValidationRow]:
    """Replay the recorded workloads on one channel of `dram` with both schedulers; some of them, if names are given.

    `progress` takes the share that is done."""
    memory = recorded_memory(dram)
    known = recorded.workloads(memory)
    configs = set(RECORDED[memory] if configs is None else configs)
    names = set(known if workloads is None else workloads)
    for unknown in sorted(configs - set(RECORDED[memory])) + sorted(names - set(known)):
        raise BadInput(f"{unknown!r} is no recorded configuration or workload of {memory}-reference")
    cases = [case for case in recorded.results(memory) if case["config"] in configs and case["workload"] in names]
    rows = []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number / len(cases))
        workload, dramsim3 = known[case["workload"]], case["DRAMsim3"]
        trace, variant = recorded.trace(case["workload"], case["config"]), configured(dram, case["config"])
        last = int(trace.cycles[-1])
        rows.append(ValidationRow(
            workload=workload["name"], config=case["config"], held_out=workload.get("held_out", False),
            kind=workload["kind"], group=_group(workload, dramsim3, case["Ramulator2"]), requests=trace.lines.size,
            saturated=dramsim3["cycles"] > 1.01 * last,
            ours=_measured(trace, variant), fr_fcfs=_measured(trace, with_fr_fcfs(variant)),
            dramsim3=_recorded(dramsim3),
            ramulator2={name: _recorded(one) for name, one in case["Ramulator2"].items()}))
    if progress is not None:
        progress(1)
    return rows


def _micro_commands(case: dict[str, Any], dram: Dram) -> list[tuple[int, str, int]]:
    requests = case["requests"]
    trace = Trace.of([line_of(dram, *place) for _, *place, _ in requests], [r[0] == "W" for r in requests],
                     [r[5] for r in requests])
    return [(cycle, name, bank) for cycle, name, bank, _ in commands(replay_trace(trace, dram, log=True).state, 0)]


def _recorded_commands(case: dict[str, Any], simulator: str, delay: int = 0) -> list[tuple[int, str, int]]:
    return [(cycle + delay, name, 4 * place[0] + place[1] if len(place) > 1 else 0)
            for cycle, name, *place in case[simulator]["commands"]]


def validate_micro(dram: Dram, configs: Iterable[str] | None = None) -> list[MicroRow]:
    """Replay the recorded cases of a few requests each."""
    memory = recorded_memory(dram)
    configs = set(RECORDED[memory] if configs is None else configs)
    rows = []
    for case in recorded.micro_cases(memory):
        if case["config"] not in configs:
            continue
        variant = configured(dram, case["config"])
        theirs, ramulator = _recorded_commands(case, "DRAMsim3"), _recorded_commands(case, "Ramulator2")
        rows.append(MicroRow(
            case["name"], case["config"], len(theirs), equal=_micro_commands(case, variant) == theirs,
            agreed=[c[:2] for c in _recorded_commands(case, "DRAMsim3", -1)] == [c[:2] for c in ramulator],
            fr_fcfs_equal=[c[:2] for c in _micro_commands(case, with_fr_fcfs(variant))] == [c[:2] for c in ramulator]))
    return rows


def _name(row: ValidationRow) -> str:
    return f"{row.workload} {row.config}"


def _worst(target: str, limit: float, unit: str, cases: list[tuple[float, str]], most: bool = True) -> list[Verdict]:
    """Return the verdict on a list of (value, case), whose values must be at most (at least) `limit`.

    Without cases there is none.
    """
    if not cases:
        return []
    worst, where = (max if most else min)(cases)
    return [Verdict(target, len(cases), worst, limit, where, worst <= limit if most else worst >= limit, unit)]


def verdicts(rows: list[ValidationRow], micro: Sequence[MicroRow] = ()) -> list[Verdict]:
    """Judge what is asked of the model, each with its worst case among `rows` and `micro`."""
    steady = [row for row in rows if row.group != SCHEDULING]
    relaxed = [row for row in steady if row.kind == "load" and not row.saturated]
    activated = [row for row in steady if row.kind in ("rand", "conflict")]

    def apart(rows: list[ValidationRow], what: str) -> list[tuple[float, str]]:
        return [(100 * abs(row.ours.difference(row.dramsim3, what)), _name(row)) for row in rows]

    def speed(kind: str, of: str) -> list[tuple[float, str]]:
        return [(getattr(row, of).requests_per_second / 1e6, _name(row)) for row in rows if row.kind == kind]

    found = []
    if micro:
        wrong = [row for row in micro if not row.equal]
        found.append(Verdict("micro: command cycles are DRAMsim3's", len(micro), len(wrong), 0,
                             wrong[0].case if wrong else "", not wrong, "cases"))
        agreed = [row for row in micro if row.agreed]
        wrong = [row for row in agreed if not row.fr_fcfs_equal]
        found.append(Verdict("micro: FR-FCFS's too, where both simulators agree", len(agreed), len(wrong), 0,
                             wrong[0].case if wrong else "", not wrong, "cases"))
    for config in dict.fromkeys(row.config for row in steady):
        found += _worst(f"finishing time, timing-bound and paced, {config}", 2, "%",
                        apart([row for row in steady if row.config == config], "cycles"))
    held_out = [row for row in rows if row.held_out]
    found += _worst("finishing time, held out", 0, "%", apart(held_out, "cycles"))
    found += _worst("activates, held out", 0, "%", apart(held_out, "activates"))
    found += _worst("read latency of unsaturated loads", 10, "%", apart(relaxed, "read_latency_cycles"))
    found += _worst("activates, random and conflict", 3, "%", apart(activated, "activates"))
    found += _worst("refreshes, all workloads", 1, "refreshes", [
        (abs(row.ours.refreshes - row.dramsim3.refreshes), _name(row)) for row in rows])
    for kind, name in (("seq", "streaming"), ("rand", "random")):
        for of in ("ours", "fr_fcfs"):
            scheduler = "dramsim3" if of == "ours" else "fr_fcfs"
            found += _worst(f"speed, {name}, scheduler {scheduler}: 10x DRAMsim3's", DRAMSIM3_SPEED[kind] / 1e5,
                            "M requests/s", speed(kind, of), most=False)
    return found
