"""Waveforms of a window as VCD, with save files that open them grouped and named in GTKWave and in Surfer.

They are the RTL's ports, the inner signals that the traced top shows, and the models' state beside them.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from vcd import VCDWriter
from vcd.gtkw import GTKWSave

from t3sim.base.errors import BadInput
from t3sim.base.output import whole_file
from t3sim.cosim.traced import groups
from t3sim.gpu.fabric.network import outgoing
from t3sim.gpu.setup import STATES
from t3sim.gpu.state import Sim
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import PREFIX
from t3sim.rtlsim.waves import Signal, port_signals
from t3sim.trace.store import GTKWAVE, SURFER, WAVES

_PIXELS, _PIXELS_PER_CYCLE = 1000, 200  #: of a viewer's window; of GTKWave at zoom 0
MOST_CYCLES = 20_000  #: of one recording: every signal is kept for every cycle


class Waves:
    """Samples of one device, one row of words per cycle: inputs, outputs, inner signals, models."""

    def __init__(self, ports: PortMap, geometry, device: int, gpu: int) -> None:
        self.device = device
        self.scope = scope = f"gpu_{gpu}"
        plain = [port for port in ports.outputs.values() if not port.name.startswith(PREFIX)]
        self._plain_words = sum(port.words for port in plain)
        traced_at = ports.input_words
        self.signals = [signal for port in ports.inputs.values() for signal in port_signals(port, scope, 0)]
        self.signals += [signal for port in plain for signal in port_signals(port, scope, ports.input_words)]
        for name, slots in groups(geometry).items():
            at = (traced_at + ports.port(PREFIX + name).offset) * 64
            for slot in slots:
                owner, _, leaf = slot.terms[0].lstrip("|").rpartition(".")
                if len(slot.terms) == 2:  # a handshake is named after its valid
                    leaf = leaf.replace("__valid", "") + ("_waits" if slot.terms[1].startswith("~") else "_moves")
                self.signals.append(Signal(f"{scope}.inside.{owner or 'top'}", leaf, at + slot.lsb, slot.width))
        self._model_word = ports.input_words + ports.output_words
        self._models = [(f"{scope}.models.channel_{c}", name) for c in range(geometry.channel.channels)
                        for name in ("dram_queue", "compute_queue", "inbound_queue")]
        self._models += [(f"{scope}.models", name) for name in (
            "link_flight", "stores_for_link", "dma_data_for_link", "next_workgroup", "workgroups_finished",
            *(f"units_{state}" for state in STATES))]
        self.signals += [Signal(place, name, (self._model_word + i) * 64, 32)
                         for i, (place, name) in enumerate(self._models)]
        self.first: int | None = None
        self._rows: list[np.ndarray] = []

    def sample(self, now: int, inputs: np.ndarray, before: np.ndarray, behind: np.ndarray, sim: Sim) -> None:
        """Sample cycle `now`: its inputs, the outputs that it showed, and the inner signals after its edge."""
        if self.first is None:
            self.first = now
        outputs = behind.copy()
        outputs[:self._plain_words] = before[:self._plain_words]
        d, rows = self.device, slice(self.device * sim.mem.m.channels, (self.device + 1) * sim.mem.m.channels)
        mem = sim.mem
        queues = np.stack([mem.hbm.occupancy[rows], mem.compute.count[rows], mem.inbound.count[rows]], 1).ravel()
        units = sim.kernel.state
        states = np.bincount(units.state[d], minlength=len(STATES))
        leaving = [queue.count[outgoing(sim.network, d)].sum()
                   for queue in (sim.network.flight, sim.stores_out, sim.mem.dma_returns)]
        other_ports = [*leaving, units.next_wg[d], units.finished[d]]
        self._rows.append(np.concatenate([inputs, outputs, queues, other_ports, states]).astype(np.int64))

    @property
    def rows(self) -> np.ndarray:
        return np.array(self._rows).view(np.uint64)


def _values(rows: np.ndarray, signal: Signal) -> np.ndarray:
    """Return the values of one signal in all cycles; wider than a word as Python's integers."""
    word, low = divmod(signal.bit, 64)
    mask = (1 << signal.width) - 1
    if low + signal.width <= 64:
        return (rows[:, word] >> np.uint64(low)) & np.uint64(mask)
    words = -(-(low + signal.width) // 64)
    value = sum(rows[:, word + i].astype(object) << 64 * i for i in range(words))
    return (value >> low) & mask


def check_window(first: int, end: int | None) -> None:
    if end is None or end - first > MOST_CYCLES:
        raise BadInput("waves: every signal of every cycle is kept: give from = CYCLE and until = CYCLE, a window of "
                       f"at most {MOST_CYCLES:,} cycles")


def write_waves(folder: Path, devices: list[Waves], clock_ghz: float) -> None:
    """Write `waves.vcd`, `waves.gtkw` and `waves.sucl`; one time unit is one memory cycle."""
    with whole_file(folder / WAVES) as file, VCDWriter(
            file, timescale="1 ns", comment=f"time is in memory cycles ({clock_ghz} GHz)",
            init_timestamp=devices[0].first) as writer:
        variables, values, cycles, owners = [], [], [], []
        for waves in devices:
            rows = waves.rows
            for signal in waves.signals:
                of_signal = _values(rows, signal)
                changed = np.flatnonzero([True, *(of_signal[1:] != of_signal[:-1])])
                owners.append(np.full(len(changed), len(variables)))
                cycles.append(changed + waves.first)
                values.append(iter(of_signal[changed].tolist()))
                variables.append(writer.register_var(signal.scope, signal.name, "wire", size=signal.width))
        cycles, owners = np.concatenate(cycles), np.concatenate(owners)
        for at in np.argsort(cycles, kind="stable"):
            writer.change(variables[owners[at]], int(cycles[at]), next(values[owners[at]]))
    _save_files(folder, devices)


def _chosen(devices: list[Waves]) -> Iterator[tuple[str, list[Signal]]]:
    """Give groups to begin with: what one asks of a run, before the hundreds of other signals."""
    for waves in devices:
        gpu = waves.scope
        by_scope: dict[str, list[Signal]] = {}
        for signal in waves.signals:
            by_scope.setdefault(signal.scope, []).append(signal)
        yield f"{gpu}: models", by_scope[f"{gpu}.models"]
        for scope, signals in by_scope.items():
            inside = re.fullmatch(rf"{gpu}\.inside\.(tracker_\d+|merge|table|channel_0\.arbiter|engine_\d+)", scope)
            if inside:
                yield f"{gpu}: {inside[1]}", signals


def _save_files(folder: Path, devices: list[Waves]) -> None:
    first = devices[0].first
    with whole_file(folder / GTKWAVE) as file:
        save = GTKWSave(file)
        save.dumpfile(str((folder / WAVES).resolve()))  # GTKWave would look for another from its own folder
        save.timestart(first)
        save.zoom_markers(-math.log2(len(devices[0].rows) * _PIXELS_PER_CYCLE / _PIXELS))
        for title, signals in _chosen(devices):
            with save.group(title, closed=len(signals) > 12):
                for signal in signals:
                    bits = f"[{signal.width - 1}:0]" if signal.width > 1 else ""
                    save.trace(signal.path + bits, datafmt="dec" if signal.width <= 32 else "hex")
    with whole_file(folder / SURFER) as file:
        file.writelines(f"{line}\n" for line in _surfer_commands(devices))


def _surfer_commands(devices: list[Waves]) -> Iterator[str]:
    """Write Surfer's commands, of which one adds a whole scope as a group of that name.

    What follows `divider_add` is a single word.
    """
    for waves in devices:
        yield f"divider_add {waves.scope}"
        for _, signals in _chosen([waves]):
            yield "item_unfocus"  # else the next group would go into this one
            yield f"scope_add_as_group {signals[0].scope}"
    yield "zoom_fit"
