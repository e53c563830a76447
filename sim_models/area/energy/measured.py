"""Energy of a fused sub-layer's run: the top's by module, the near-memory ALUs', and what else the layer takes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from t3sim.area.energy.circuit import lower
from t3sim.area.energy.price import CLASSES, NOTHING, Range, price
from t3sim.area.energy.recorded import (
    BATCH,
    ModuleReplay,
    RecordedTop,
    ReplayObserver,
    StepRecorder,
    module_ports,
    port_groups,
    recorded_top,
)
from t3sim.area.liberty import Library
from t3sim.area.measure import map_block
from t3sim.area.node import ProcessNode
from t3sim.base.errors import BadInput
from t3sim.cosim.designs import block_design
from t3sim.cosim.nmc_alu import COLUMN_BYTES, DTYPES, OPERATIONS
from t3sim.gpu.fabric.bits import UPDATE
from t3sim.machine import Machine
from t3sim.rtlsim.simulator import Simulator
from t3sim.runs.fused import fused_run
from t3sim.study.scenario.recorded import recorded as recorded_setup
from t3sim.study.scenario.scenario import Scenario

TECHNIQUE = "t3-mca+"
ALU = "nmc_alu"
_ALU_BYTES = 8  #: of a column of the block that is mapped
_ALU_CYCLES = 4096

Progress = Callable[[str, float], None]

#: pJ a bit. HBM: over 35 GB/s a watt (AMD, High-Bandwidth Memory, 2015); HBM2 (O'Connor et al., Fine-Grained DRAM,
#: MICRO 2017).
DRAM_PJ_PER_BIT = Range(3.57, 3.92, 3.92)
#: pJ a bit. NVLink-C2C, within a board's module, and 112 Gb/s serial links (NVIDIA Grace Hopper, 2022); between
#: packages of a board (Arunkumar et al., MCM-GPU, ISCA 2017).
LINK_PJ_PER_BIT = Range(1.3, 5.5, 10.0)
#: pJ a FLOP of fp16 on matrix units, of a whole card at its limit and peak, its DRAM included: A100 SXM (400 W, 312
#: TFLOP/s), V100 SXM2 (300 W, 125 TFLOP/s); the latter for as long as the GEMM took.
A100_PJ_PER_FLOP, V100_PJ_PER_FLOP, V100_WATTS = 400 / 312, 300 / 125, 300


@dataclass(frozen=True)
class ModuleEnergy:
    """All instances of a module over the run."""

    instances: int
    flip_flops: int  #: of one
    changes: float  #: of a net, a cycle
    clocked_share: float  #: share of the flip-flops that a cycle clocks
    energies: dict[str, Range]  #: pJ, by class

    @property
    def pj(self) -> Range:
        return sum(self.energies.values(), NOTHING)

    def to_json(self) -> dict:
        return {"instances": self.instances, "flip_flops": self.flip_flops, "changes_per_net_cycle": self.changes,
                "clocked_share": self.clocked_share, "pj": self.pj.to_json(),
                "pj_by_class": {name: value.to_json() for name, value in self.energies.items()}}


@dataclass(frozen=True)
class LayerEnergy:
    """A run's energy; pJ of a GPU."""

    layer: str
    machine: str
    technique: str
    library: str
    node: str
    cycles: int
    clock_ghz: float
    whole: bool  #: whether the kernel came to its end
    modules: dict[str, ModuleEnergy]
    alu_pj_per_byte: Range  #: of sums that it makes
    alu_waiting_pj_per_byte: Range  #: of cycles in which it waits, for a byte of its sums
    counters: dict[str, int]  #: of the RTL
    reduced_bytes: int
    dram_bytes: int
    link_bytes: int
    flops: int

    @property
    def top_pj(self) -> Range:
        return sum((module.pj for module in self.modules.values()), NOTHING)

    @property
    def alu_pj(self) -> Range:
        """Energy of all near-memory ALUs."""
        return (self.alu_pj_per_byte + self.alu_waiting_pj_per_byte) * self.reduced_bytes

    def milliwatts(self, pj: Range) -> Range:
        return pj * self.clock_ghz / self.cycles

    @property
    def by_class(self) -> dict[str, Range]:
        """Energy of the top, in pJ."""
        return {name: sum((module.energies[name] for module in self.modules.values()), NOTHING) for name in CLASSES}

    def modules_pj(self, *modules: str) -> Range:
        return sum((self.modules[name].pj for name in modules if name in self.modules), NOTHING)

    @property
    def actions(self) -> dict[str, tuple[int, Range]]:
        """Actions of the top: how often, and what each takes in pJ."""
        counters = self.counters
        totals = {
            "byte reduced (near-memory ALU)": (self.reduced_bytes, self.alu_pj_per_byte * self.reduced_bytes),
            "the same, with the cycles that it waits": (self.reduced_bytes, self.alu_pj),
            "update counted (network, Tracker)": (
                counters["updates"], self.modules_pj("update_network", "tracker_bank")),
            "trigger (network, Tracker, merge)": (counters["triggers"], self.modules_pj(
                "update_network", "tracker_bank", "trigger_merge")),
            "tile sent (DMA table, engines, line router, egress)": (counters["commands"], self.modules_pj(
                "dma_table", "address_generator", "line_router", "read_credits", "egress")),
            "tile (the whole top)": (counters["triggers"], self.top_pj),
            "byte of DRAM (memory channels)": (self.dram_bytes, self.modules_pj("memory_channel")),
        }
        return {name: (count, pj / count) for name, (count, pj) in totals.items() if count}

    @property
    def shares(self) -> dict[str, Range]:
        """Energy of the layer on a GPU, in pJ."""
        watts = V100_WATTS * self.cycles / self.clock_ghz * 1e3  # 1 W for 1 ns is 1000 pJ
        return {
            "matrix units, whole card": Range(self.flops * A100_PJ_PER_FLOP, self.flops * V100_PJ_PER_FLOP,
                                              max(watts, self.flops * V100_PJ_PER_FLOP)),
            "DRAM": DRAM_PJ_PER_BIT * (8 * self.dram_bytes),
            "link": LINK_PJ_PER_BIT * (8 * self.link_bytes),
            "Track & Trigger": self.top_pj,
            "near-memory ALUs": self.alu_pj,
        }

    def to_json(self) -> dict:
        return {
            **{name: getattr(self, name) for name in (
                "layer", "machine", "technique", "library", "node", "cycles", "clock_ghz", "whole", "counters",
                "reduced_bytes", "dram_bytes", "link_bytes", "flops")},
            "top_mw": self.milliwatts(self.top_pj).to_json(),
            "top_mw_by_class": {name: self.milliwatts(pj).to_json() for name, pj in self.by_class.items()},
            "alu_pj_per_byte": self.alu_pj_per_byte.to_json(),
            "alu_waiting_pj_per_byte": self.alu_waiting_pj_per_byte.to_json(),
            "actions": {name: {"count": count, "pj": pj.to_json()} for name, (count, pj) in self.actions.items()},
            "layer_pj": {name: pj.to_json() for name, pj in self.shares.items()},
            "modules": {name: module.to_json() for name, module in self.modules.items()},
        }


def measure_energy(machine_name: str, cells: Library, node: ProcessNode, until: int | None,
                   progress: Progress) -> LayerEnergy:
    """Run the layer of `t3 run` and replay it through the netlists. Raises Failure where they differ from the RTL."""
    setup = recorded_setup(Scenario(techniques=(TECHNIQUE,), machine=machine_name))
    machine, kernel = setup.machine, setup.kernel
    top = recorded_top(machine.geometry(), cells, lambda share: progress("netlists", share))
    progress("netlists", 1.0)
    recorders: list[StepRecorder] = []

    def record(backend: Simulator) -> StepRecorder:
        recorders.append(StepRecorder(backend, top))
        return recorders[-1]

    run = fused_run(kernel.policy, setup.planned, kernel.skew is not None, top.design, record)
    try:
        if len(recorders) > 1:
            raise BadInput(f"machine {machine.name}: energy is measured on one representative GPU, but this "
                           f"run simulates {len(recorders)} GPUs")
        counting = _Counting(top, machine.geometry().channel.channels)
        program_rows = np.array(recorders[0].rows)
        counting.replay(program_rows, -len(program_rows))
        counting.start()
        run.observers.append(counting)
        whole = run.run(lambda share: progress("run", share), until=until)
        progress("run", 1.0)
        counters = run.counters(0)
        dram = int(run.sim.mem.dram_bytes[0].sum())
        modules = {part.module: _module_energy(part, counting.cycles, node, machine) for part in top.parts}
        work = setup.plan.workload
        layer = LayerEnergy(
            work.title, machine.name, TECHNIQUE, cells.name, node.name, counting.cycles, machine.memory_clock_ghz,
            whole, modules, *_alu_energy(cells, machine, node, counting.reduced_bytes / counting.cycles), counters,
            counting.reduced_bytes, dram, counting.sent_bytes, 2 * work.m * work.n * work.k)
    finally:
        run.close()
    progress("ALU", 1.0)
    return layer


def _module_energy(part: ModuleReplay, cycles: int, node: ProcessNode, machine: Machine) -> ModuleEnergy:
    instances, state, lowered = len(part.instances), part.state, part.lowered
    ends = lowered.circuit.groups[:, 1] - lowered.circuit.groups[:, 0]
    flip_flops = int(ends.sum())
    instance_cycles = instances * cycles
    return ModuleEnergy(
        instances, flip_flops,
        float(state.toggles[2:len(lowered.nets) + 2].sum() / (len(lowered.nets) * instance_cycles)),
        float((state.clocks * ends).sum() / (flip_flops * instance_cycles)) if flip_flops else 0.0,
        price(lowered, state, instances, cycles, node, machine.memory_clock_ghz))


class _Counting(ReplayObserver):
    """The replay of a run that also counts the bytes that memory adds, and those that leave by the link."""

    def __init__(self, top: RecordedTop, channels: int) -> None:
        super().__init__(top)
        self._top, self._channels = top, channels
        self.reduced_bytes = self.sent_bytes = 0

    def replay(self, rows: np.ndarray, first: int) -> None:
        super().replay(rows, first)
        if first < 0:
            return
        ports = self._top.design.ports
        for name in ports.outputs:
            stem = name.removesuffix(".valid")
            if stem == name or not stem.startswith(("dram[", "packets[")):
                continue
            fields, prefix = ports.port(f"{stem}.payload").fields, stem.replace("[", "__").replace("]", "")

            def value(leaf: str, lsb: int = 0, width: int = 1, prefix: str = prefix) -> np.ndarray:
                return self._top.bits(rows, f"{prefix}__{leaf}", lsb, width)

            moves = (value("valid") & value("ready")).astype(bool)
            if not moves.any():
                continue
            inner = "request." if "request.bytes" in fields else ""
            amount, op = (fields[f"{inner}{key}"] for key in ("bytes", "op"))
            byte_counts = value("payload", amount.lsb, amount.width)
            if stem.startswith("packets["):
                self.sent_bytes += int(byte_counts[moves].sum())
            else:
                self.reduced_bytes += int(byte_counts[moves & (value("payload", op.lsb, op.width) == UPDATE)].sum())


def _alu_energy(cells: Library, machine: Machine, node: ProcessNode, reduced_per_cycle: float,
                ) -> tuple[Range, Range]:
    """Return the near-memory ALUs' energy for a byte, in pJ: at work, and of the cycles between in which they wait.

    Operands are sums of fp16, as in a ring's reduce-scatter: what a GPU holds, and what one to seven have added up.
    """
    geometry = machine.geometry()
    lowered = lower(map_block(ALU, geometry, cells)[0])
    library = block_design(ALU, geometry, port_groups({"": lowered.netlist}))
    busy, idle = (_alu_run(lowered, library, valid, node, machine) for valid in (True, False))
    lanes = COLUMN_BYTES // _ALU_BYTES * geometry.channel.channels
    share = reduced_per_cycle / (lanes * _ALU_BYTES)
    waits = max(0.0, 1 / share - 1) if share else 0.0
    return busy / (_ALU_CYCLES * _ALU_BYTES), idle * waits / (_ALU_CYCLES * _ALU_BYTES)


def _alu_run(lowered, library, valid: bool, node: ProcessNode, machine: Machine) -> Range:
    ports = library.ports
    part = module_ports(library, lowered, ALU)
    random, elements = np.random.default_rng(0), _ALU_BYTES // 2
    size, payload = (_ALU_CYCLES, elements), ports.port("operands.payload")
    stimulus = np.zeros((_ALU_CYCLES, ports.input_words), np.uint64)
    stimulus[:, ports.port("operands.valid").offset] = valid
    stimulus[:, ports.port("result.ready").offset] = 1
    if valid:
        for name, parts in (("old", 1), ("new", random.integers(1, 8, (_ALU_CYCLES, 1)))):
            column = (random.standard_normal(size) * np.sqrt(parts)).astype(np.float16).view(np.uint64)
            stimulus[:, payload.offset + payload.fields[name].lsb // 64] = column[:, 0]
        for name, number in (("op", OPERATIONS["add"]), ("dtype", DTYPES["fp16"])):
            bit = payload.fields[name].lsb
            stimulus[:, payload.offset + bit // 64] |= np.uint64(number << bit % 64)
    with Simulator(library) as alu:
        rows = alu.run(stimulus)[:, part.first:].view(np.int64)
    for replay in part.parts:
        replay.power_on(part.reset)
        replay.clear()
        for start in range(0, len(rows), BATCH):
            replay.take(rows[start:start + BATCH], start, BATCH // 8)
        energies = price(lowered, replay.state, 1, _ALU_CYCLES, node, machine.memory_clock_ghz)
    return sum((energies[name] for name in CLASSES), NOTHING)
