"""Open Amaranth designs on the compiled simulator: `python scripts/open_designs.py [DESIGN ...] [--path CHECKOUT ...]`.

Each design gets the same random inputs in Amaranth's simulator and compiled, by the same testbench, and every signal
has to be equal in every cycle. A checksum of every signal in 4,096 cycles has to be equal in Verilator. The table has
cycles per second of Amaranth's simulator, of the same testbench on the compiled design, of the compiled design alone
and of Verilator, or why a design is not supported. All seconds are a core's. What is not installed and in no checkout
is named.
"""

import argparse
import atexit
import copy
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from amaranth.back import rtlil
from amaranth.back.verilog import _convert_rtlil_text
from amaranth.hdl import Cat, ClockDomain, DomainRenamer, Elaboratable, Fragment, Module, Signal
from amaranth.hdl._ast import SignalDict
from amaranth.hdl._ir import Design
from amaranth.sim import Simulator
from amaranth.sim.pysim import PySimEngine

from t3sim.cosim.other_simulators import build_verilator, core_seconds, run_driver, verilator_runtime
from t3sim.rtlsim.engine import CompiledEngine
from t3sim.rtlsim.graph import UnsupportedDesign
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.stimulus import random_stimulus

CYCLES = 2000
_PERIOD_SECONDS = 1e-6
_MEASURED_SECONDS = 1.0  #: of the compiled design alone
_MEASURED_CYCLES = 4096
_VERILATOR_SIGNALS = 5000  #: of a larger design, coreblocks, 2 of Verilator's 97 files were compiled after 15 minutes
_READ_TOGETHER = 32  #: signals


class Between(Elaboratable):
    """Something of Amaranth's library between two signals."""

    def __init__(self, make: Callable) -> None:
        self._make = make
        self.i = Signal()
        self.o = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = self._make(self.i, self.o)
        return m


class ResetCounter(Elaboratable):
    """A counter in a domain whose reset is synchronized."""

    def __init__(self) -> None:
        self.arst = Signal()
        self.count = Signal(8)

    def elaborate(self, platform) -> Module:
        from amaranth.lib.cdc import ResetSynchronizer
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules.synchronizer = ResetSynchronizer(self.arst)
        m.d.sync += self.count.eq(self.count + 1)
        return m


def of(module: str, name: str, *arguments, **named) -> Callable[[], Elaboratable]:
    """Return what imports and makes a design."""
    return lambda: getattr(importlib.import_module(module), name)(*arguments, **named)


def _crc() -> Elaboratable:
    from amaranth.lib.crc.catalog import CRC32_ETHERNET
    return CRC32_ETHERNET(data_width=32).create()


#: Of Amaranth's own library: these are in the tests.
LIBRARY: dict[str, Callable[[], Elaboratable]] = {
    "amaranth SyncFIFO": of("amaranth.lib.fifo", "SyncFIFO", width=16, depth=13),
    "amaranth SyncFIFOBuffered": of("amaranth.lib.fifo", "SyncFIFOBuffered", width=70, depth=16),
    "amaranth AsyncFIFO": of("amaranth.lib.fifo", "AsyncFIFO", width=16, depth=16),
    "amaranth AsyncFIFOBuffered": of("amaranth.lib.fifo", "AsyncFIFOBuffered", width=16, depth=17),
    "amaranth CRC-32": _crc,
    "amaranth FFSynchronizer": lambda: Between(partial(_cdc, "FFSynchronizer")),
    "amaranth AsyncFFSynchronizer": lambda: Between(partial(_cdc, "AsyncFFSynchronizer")),
    "amaranth PulseSynchronizer": of("amaranth.lib.cdc", "PulseSynchronizer", "read", "write"),
    "amaranth ResetSynchronizer": ResetCounter,
}


def _cdc(name: str, i: Signal, o: Signal) -> Elaboratable:
    return getattr(importlib.import_module("amaranth.lib.cdc"), name)(i, o)


def _luna_device() -> Elaboratable:
    from luna.gateware.interface.utmi import UTMIInterface
    from luna.gateware.usb.usb2.device import USBDevice
    from usb_protocol.emitters import DeviceDescriptorCollection
    device, descriptors = USBDevice(bus=UTMIInterface()), DeviceDescriptorCollection()
    with descriptors.DeviceDescriptor() as about:
        about.idVendor, about.idProduct, about.bNumConfigurations = 0x16d0, 0xf3b, 1
    with descriptors.ConfigurationDescriptor() as configuration:
        with configuration.InterfaceDescriptor() as interface:
            interface.bInterfaceNumber = 0
    device.add_standard_control_endpoint(descriptors)
    return DomainRenamer({"usb": "sync"})(device)


def _gpio() -> Elaboratable:
    return importlib.import_module("amaranth_soc.gpio").Peripheral(pin_count=8, addr_width=4, data_width=8)


def _csr_bridge() -> Elaboratable:
    from amaranth_soc.csr import bus, wishbone
    from amaranth_soc.memory import MemoryMap
    interface = bus.Interface(addr_width=10, data_width=8, path=("csr",))
    interface.memory_map = MemoryMap(addr_width=10, data_width=8)
    return wishbone.WishboneCSRBridge(interface, data_width=32)


def _glasgow_pins(module: str, name: str, pins: tuple[str, ...], *arguments) -> Elaboratable:
    from amaranth.lib import io
    ports = type("Ports", (), {pin: io.SimulationPort("io", 1, name=pin) for pin in pins})()
    return getattr(importlib.import_module(f"glasgow.gateware.{module}"), name)(ports, *arguments)


class Coreblocks(Elaboratable):
    """The core of that name, in one of its configurations."""

    def __init__(self, configuration: str) -> None:
        self._configuration = getattr(importlib.import_module("coreblocks.params.configurations"), configuration)

    def elaborate(self, platform) -> Fragment:
        from coreblocks.core import Core
        from coreblocks.params.genparams import GenParams
        from transactron import TransactronContextComponent
        from transactron.utils import DependencyContext, DependencyManager
        with DependencyContext(DependencyManager()):
            core = Core(gen_params=GenParams(self._configuration))
            return Fragment.get(TransactronContextComponent(core, dependency_manager=DependencyContext.get()), platform)


DESIGNS = LIBRARY | {
    "amaranth-soc GPIO": _gpio,
    "amaranth-soc Wishbone bridge": _csr_bridge,
    "smolarith pipelined multiplier": of("smolarith.mul", "PipelinedMul", 32),
    "smolarith divider": of("smolarith.div", "MulticycleDiv", 32),
    "sentinel-cpu RV32I": of("sentinel_cpu.top", "Top"),
    "minerva RV32I": of("minerva.core", "Minerva"),
    "luna USB device": _luna_device,
    "glasgow COBS encoder": of("glasgow.gateware.cobs", "Encoder"),
    "glasgow COBS decoder": of("glasgow.gateware.cobs", "Decoder"),
    "glasgow I2C initiator": lambda: _glasgow_pins("i2c", "I2CInitiator", ("scl", "sda"), 16),
    "coreblocks, tiny": partial(Coreblocks, "tiny"),
    "coreblocks, full": partial(Coreblocks, "full"),
}


def run(simulator: Simulator, inputs: Cat, shown: list[Cat], cycles: int) -> tuple[list[list[int]], float]:
    """Change inputs at random in every third cycle; return what is shown in each, and cycles per second without that.

    It runs twice: for the speed nothing is read.
    """
    trace, reads = [], True

    async def testbench(ctx) -> None:
        rng = random.Random(1)
        for cycle in range(cycles):
            if cycle % 3 == 0:
                ctx.set(inputs, rng.getrandbits(len(inputs)))
            await ctx.delay(_PERIOD_SECONDS)
            if reads:
                trace.append([ctx.get(some) for some in shown])

    simulator.add_testbench(testbench)
    simulator.run()
    simulator.reset()
    reads, start = False, time.process_time()
    simulator.run()
    return trace, cycles / (time.process_time() - start)


@cache
def runtime() -> list[Path]:
    folder = tempfile.mkdtemp(prefix="t3-")
    atexit.register(shutil.rmtree, folder)
    return verilator_runtime(Path(folder))


def verilator(design: Design, ports: PortMap, stimulus: np.ndarray) -> tuple[float, int, float]:
    """Return the seconds of Verilator's build, the checksum of a stimulus and cycles per second."""
    names = SignalDict((signal, f"signal{number}") for number, (_, signal, _) in enumerate(design.ports))
    renamed = copy.copy(design)
    renamed.ports = [(names[signal], signal, side) for _, signal, side in design.ports]
    verilog_of = {".".join((*where.name[1:], name)): names[signal] for where in design.fragments.values()
                  for signal, name in where.signal_names.items() if signal in names}
    verilog_of |= {name: names[signal] for name, signal, _ in design.ports}
    inputs, outputs = ({str(offset): port for offset, port in {  # signals with the same bits share their words
        port.offset: replace(port, verilog=verilog_of[name]) for name, port in side.items()}.items()}
        for side in (ports.inputs, ports.outputs))
    clocks = tuple(verilog_of[clock] for clock in ports.clocks)
    runtime()  # its seconds are not the design's
    start = core_seconds()
    with tempfile.TemporaryDirectory(prefix="t3-") as folder:
        text = _convert_rtlil_text(rtlil.convert_fragment(renamed, name="top")[0], strip_internal_attrs=True)
        build_verilator(text, PortMap("top", inputs, outputs, ports.clock and verilog_of[ports.clock], clocks=clocks),
                        Path(folder), runtime())
        return core_seconds() - start, *run_driver(Path(folder), stimulus)


def compare(make: Callable[[], Elaboratable], cycles: int = CYCLES, beside: bool = False) -> dict[str, float]:
    """Return cycles per second, beside Verilator's if asked for.

    Raises UnsupportedDesign, and AssertionError where the compiled design differs.
    """
    start = core_seconds()
    compiled = Simulator(make(), engine=CompiledEngine)
    seconds = core_seconds() - start
    ports, signals = compiled._engine._hardware.simulator.ports, compiled._design.ports
    clocks = ports.clocks or (ports.clock,)
    # No resets, else a processor never starts.
    inputs = Cat(signal for name, signal, _ in signals if name in ports.inputs and "rst" not in name)
    outputs = [signal for name, signal, _ in signals if name in ports.outputs]
    shown = [Cat(outputs[at:at + _READ_TOGETHER]) for at in range(0, len(outputs), _READ_TOGETHER)]
    plain = copy.copy(compiled)  # a design can be elaborated only once
    plain._engine = PySimEngine(compiled._design)
    both = [compiled, plain]
    for simulator in both:
        for number, (name, signal, _) in enumerate(signals):
            if name in clocks:
                # No two edges at once: which comes first is Amaranth's simulator's own business.
                simulator._engine.add_clock_process(signal, phase=int(4e8 + 1e7 * number), period=int(1e9))
    (ours, testbench), (theirs, amaranth) = (run(simulator, inputs, shown, cycles) for simulator in both)
    different = next((cycle for cycle in range(cycles) if ours[cycle] != theirs[cycle]), None)
    assert different is None, f"differs in cycle {different}"
    hardware = compiled._engine._hardware.simulator
    stimulus = random_stimulus(ports, _MEASURED_CYCLES, 1)
    stimulus[:] = np.repeat(stimulus[::3], 3, 0)[:len(stimulus)]
    alone, start = 0, time.process_time()
    while (spent := time.process_time() - start) < _MEASURED_SECONDS:
        hardware.checksum(stimulus)
        alone += len(stimulus)
    result = {"signals": len(ports.outputs), "build_seconds": seconds, "amaranth": amaranth, "testbench": testbench,
              "alone": alone / spent}
    if beside and len(ports.outputs) <= _VERILATOR_SIGNALS:
        hardware.reset()
        expected = hardware.checksum(stimulus)
        result["verilator_build_seconds"], checksum, result["verilator"] = verilator(compiled._design, ports, stimulus)
        assert checksum == expected, "differs from Verilator"
    return result


def row(name: str, make: Callable[[], Elaboratable], cycles: int) -> str:
    try:
        measured = compare(make, cycles, beside=True)
    except ImportError as error:
        return f"{name:30} not here: {error}"
    except UnsupportedDesign as error:
        return f"{name:30} not supported: {error}"
    except Exception as error:
        return f"{name:30} FAILED: {type(error).__name__}: {error}"
    beside = (f"{measured['verilator']:10,.0f} {measured['verilator_build_seconds']:7.1f}" if "verilator" in measured
              else f"{'-':>10} {'-':>7}")
    return (f"{name:30} {measured['signals']:7,} {measured['build_seconds']:7.1f} {measured['amaranth']:8,.0f} "
            f"{measured['testbench']:9,.0f} {measured['alone']:10,.0f} {beside}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("designs", nargs="*", help="what the names have to contain")
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--path", action="append", default=[], help="a folder with packages, such as a checkout")
    arguments = parser.parse_args()
    sys.path[:0] = arguments.path
    warnings.simplefilter("ignore")
    print(f"{'design':30} {'signals':>7} {'build s':>7} {'Amaranth':>8} {'testbench':>9} {'alone':>10} "
          f"{'Verilator':>10} {'build s':>7}")
    with tempfile.TemporaryDirectory(prefix="t3-") as os.environ["T3_CACHE"]:  # a build has to take its time
        for name, make in DESIGNS.items():
            if not arguments.designs or any(part in name for part in arguments.designs):
                print(row(name, make, arguments.cycles), flush=True)


if __name__ == "__main__":
    main()
