"""One stimulus, three simulators, one trace: Amaranth's simulator, cocotb and the compiled RTL."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.cosim.cocotb_run import build_simulation, replay_cocotb
from t3sim.cosim.component import build_component
from t3sim.cosim.gpu import gpu_design
from t3sim.cosim.verilog import component_verilog, generate_verilog
from t3sim.machine import load_machine
from t3sim.rtl.arbiter.intensity_monitor import IntensityMonitor
from t3sim.rtl.blocks import BLOCKS as BY_NAME
from t3sim.rtl.channel.coalescer import Coalescer
from t3sim.rtl.channel.memory_channel import MemoryChannel
from t3sim.rtl.channel.nmc_alu import NmcAlu
from t3sim.rtl.control.config_bus import ConfigBus
from t3sim.rtl.dma.address_generator import AddressGenerator
from t3sim.rtl.dma.dma_table import DmaTable
from t3sim.rtl.dma.line_router import LineRouter
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, SwitchGeometry, TrackerGeometry
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtl.link.egress import Egress
from t3sim.rtl.link.ingress import Ingress
from t3sim.rtl.track.tracker import TrackerBank
from t3sim.rtl.track.trigger_merge import TriggerMerge
from t3sim.rtl.track.update_network import UpdateNetwork
from t3sim.rtl.window.dispatch_window import DispatchWindow
from t3sim.rtl.window.ready_table import ReadyTable
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.simulator import Simulator
from t3sim.rtlsim.stimulus import random_stimulus
from t3sim.study.engine_speed import recorded_stimulus

pytestmark = [pytest.mark.builds_rtl, pytest.mark.slow]

#: So small that random stimulus meets matches, full queues and wrap-arounds.
SMALL = Geometry(
    TrackerGeometry(sets=4, ways=2, banks=2, wg_bits=4, wf_bits=1, address_bits=32, count_bits=12),
    ChannelGeometry(channels=4, guard_buckets=4, coalescer_timeout_cycles=3),
    DmaGeometry(regions=4, ready_commands=4, outstanding_lines=8),
    SwitchGeometry(ports=2, packet_bytes=4, merge_sets=2, merge_ways=1, part_bits=2, buffer_packets=2))
QUEUED = replace(SMALL, dma=replace(SMALL.dma, queue_commands=4, copies=3))
PROTECTED = replace(SMALL, tracker=replace(SMALL.tracker, protection="secded"))

BLOCKS = {block.__name__: lambda block=block: block(SMALL) for block in (
    AddressGenerator, Coalescer, ConfigBus, DispatchWindow, DmaTable, Egress, GpuTop, Ingress, IntensityMonitor,
    LineRouter, MemoryChannel, TrackerBank, TriggerMerge, UpdateNetwork)} | {
        "CommandQueue": lambda: BY_NAME["command_queue"](QUEUED),
        "RepeatingEgress": lambda: Egress(QUEUED),
        "NmcAlu": lambda: NmcAlu(column_bytes=8),
        "WideAlu": lambda: BY_NAME["wide_alu"](SMALL),
        "MergeTable": lambda: BY_NAME["merge_table"](SMALL),
        "Switch": lambda: BY_NAME["switch"](SMALL),
        "ReadyTable": lambda: ReadyTable(replace(SMALL, dma=replace(SMALL.dma, ready_groups=4)), count_bits=2),
        "CorrectedRow": lambda: BY_NAME["corrected_row"](PROTECTED),
        "ProtectedTrackerBank": lambda: TrackerBank(PROTECTED)}

#: Of a switch and its tables, by the end of a number's name: its bits that stay random, and those that are 1. Packets
#: that are random in every bit are never parts of one sum, and write no setting.
MEETING = {"request.address": (0b1100, 0), "request.bytes": (0, 4), "request.op": (0b01, 0b10), "epoch": (0b01, 0b10),
           "parts": (0, 1), "whole": (0b01, 0b10), "oldest": (0b01, 0b10), "timeout": (0b11111, 0),
           "apb.psel": (0, 1), "apb.penable": (0, 1), "apb.paddr": (0xC, 0x10), "apb.pwdata": (0b01, 0b10)}


def sparse_stimulus(ports, cycles, seed):
    """Every input keeps its value for a while, and in some stretches is 0, so that queues fill and drain."""
    stimulus = random_stimulus(ports, cycles, seed, reset_probability=0.01)
    generator = np.random.default_rng(seed)
    for port in ports.inputs.values():
        if port.name == "rst":
            continue
        columns = stimulus[:, port.offset:port.offset + port.words]
        start = 0
        while start < cycles:
            end = start + int(generator.integers(1, 12))
            if generator.random() < 0.6:
                columns[start:end] = columns[start] if generator.random() < 0.6 else 0
            start = end
    return stimulus


def meeting_stimulus(ports, cycles, seed):
    """As sparse_stimulus, but packets are parts of few sums, and every second 50 cycles are idle: settings change."""
    stimulus = sparse_stimulus(ports, cycles, seed)
    idle = np.arange(cycles) % 100 < 50
    for port in ports.inputs.values():
        for name, lsb, width in [(port.name, 0, port.width), *((n, f.lsb, f.width) for n, f in port.fields.items())]:
            free, ones = next((bits for end, bits in MEETING.items() if f".{name}".endswith(f".{end}")), (-1, 0))
            for bit in range(width):
                column = stimulus[:, port.offset + (lsb + bit) // 64]
                place = np.uint64(1 << (lsb + bit) % 64)
                if not free >> bit & 1:
                    column &= ~place
                    column |= place * np.uint64(ones >> bit & 1)
        if port.name.startswith("arriving"):
            stimulus[idle, port.offset] &= ~np.uint64(1 << port.fields["valid"].lsb)
        if port.name.startswith("taken"):
            stimulus[idle, port.offset] = 1
    return stimulus


def without_idle_payloads(ports, trace):
    """Return a trace with 0 as the payloads of streams that are not valid.

    They may differ: Amaranth's simulator clears the data of a memory's read port in reset, the Verilog keeps it.
    """
    trace = trace.copy()
    for name, port in ports.outputs.items():
        valid = ports.outputs.get(name.removesuffix("payload") + "valid")
        if name.endswith(".payload") and valid:
            trace[trace[:, valid.offset] == 0, port.offset:port.offset + port.words] = 0
    return trace


@pytest.mark.parametrize("name", BLOCKS)
def test_traces_are_equal(name, seed):
    """Every block, same stimulus: Amaranth's simulator, Verilator and the compiled RTL agree in every cycle."""
    text, ports = generate_verilog(BLOCKS[name](), name.lower())
    sums = [port for port in ports.outputs.values() if port.name.startswith("holds")]  # of a switch
    stimulus = meeting_stimulus(ports, 2000, seed) if sums else sparse_stimulus(ports, 400, seed)
    with Simulator(build_component(BLOCKS[name], name.lower())) as compiled:
        expected = compiled.run(stimulus)
    possible = 1 << sum(port.width for port in ports.outputs.values())
    assert len(np.unique(expected, axis=0)) > min(4, possible - 1), "nothing happened"
    assert (expected[1:] != expected[:-1]).any(axis=1).sum() > 4, "nothing happened"
    for port in sums:
        assert len(np.unique(expected[:, port.offset])) > 1, f"{port.name}: no sum was begun"
    outputs, _ = replay_cocotb(build_simulation(text, ports), ports, stimulus)
    np.testing.assert_array_equal(outputs, expected, "cocotb and compiled RTL")
    with AmaranthBackend(BLOCKS[name](), ports) as amaranth:
        outputs = amaranth.run(stimulus)
    np.testing.assert_array_equal(without_idle_payloads(ports, outputs), without_idle_payloads(ports, expected),
                                  "Amaranth's simulator and compiled RTL")


@pytest.mark.builds_loops
def test_the_default_top_equals_verilator(seed):
    """The whole GPU at its real size: a fused run from its start, then random inputs on what it has programmed."""
    machine = load_machine("t3-table1")
    geometry = machine.geometry()
    assert geometry == Geometry()
    text, ports = component_verilog(lambda: GpuTop(geometry), "gpu_top", geometry)
    recorded = recorded_stimulus(machine, 4000)
    stimulus = np.concatenate([recorded, sparse_stimulus(ports, 1000, seed)])
    with Simulator(gpu_design(geometry)) as compiled:
        expected = compiled.run(stimulus)
    for name in ("dram[{}].valid", "compute[{}].ready"):
        for channel in range(geometry.channel.channels):
            column = expected[:len(recorded), ports.outputs[name.format(channel)].offset]
            assert column.any(), f"{name.format(channel)}: nothing happened"
    outputs, _ = replay_cocotb(build_simulation(text, ports), ports, stimulus)
    different = np.argwhere(outputs != expected)
    assert not len(different), f"cycle {different[0][0]}, word {different[0][1]} of the outputs"
