"""The RTL next to the models: in each cycle a GPU's models drive its inputs and read its outputs.

The first argument of the functions is the hardware or None. Their bodies here are for None, a GPU without Track &
Trigger; the methods of `Hardware` replace them. All outputs of the RTL are functions of registers, so in cycle n the
models see the outputs after the edge of cycle n-1.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import PLACES, lowest_bit
from t3sim.base.compiled.by_type import by_type
from t3sim.base.compiled.jit import compiled, inlined, whole
from t3sim.base.compiled.records import Record
from t3sim.base.compiled.words import words_at
from t3sim.base.line import LINE_BYTES
from t3sim.cosim.ports import Ports
from t3sim.gpu.engine.chaos import extra_delay, held_back
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.engine.switch_hardware import SwitchHardware, no_switch, run_switch
from t3sim.gpu.fabric import bits, memory, queues
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric.queues import RequestQueue, TagQueue, TimedQueue
from t3sim.gpu.state import Sim
from t3sim.rtlsim.simulator import Backend

#: Type of a compiled design's `step`; Python's is given the same, so that one version of the loop serves both.
_STEP = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
_LANE = 256  # more packets than a lane's lines become: five, and up to 31 copies of each


@by_type
def memory_cycle(hardware: "Hardware | None", sim: Sim, gpu: int, now: int) -> None:
    """Run the memory channels of a GPU for a cycle: its DRAM, then the oldest request of each stream.

    Without arbiters the streams take turns.
    """
    memory.direct_cycle(sim.mem, sim.network, gpu, now)


@by_type
def egress_cycle(hardware: "Hardware | None", sim: Sim, gpu: int, now: int) -> None:
    """Put lines for the link into the egress lanes, and packets from them onto the link."""


@by_type
def may_start(hardware: "Hardware | None", gpu: int) -> bool:
    """Ask the dispatch window to start the next workgroup; return whether it starts in this cycle."""
    return True


@by_type
def inputs_complete(hardware: "Hardware | None", gpu: int, asks: int) -> bool:
    """Say whether the ready table has answered this many asks."""
    return True


@by_type
def nothing_to_start(hardware: "Hardware | None", gpu: int) -> None:
    """Say that no workgroup can start in this cycle."""


@by_type
def show_producer(hardware: "Hardware | None", gpu: int, active: bool) -> None:
    """Tell the monitors whether a producer's kernel runs."""


@by_type
def side_signals(hardware: "Hardware | None", sim: Sim, gpu: int, now: int) -> None:
    """Drive requests for workgroups, heads of dispatch windows to and from peers, and final tiles' events."""


@by_type
def clock_edge(hardware: "Hardware | None", gpu: int) -> None:
    """Let the RTL take its clock edge."""


@by_type
def switch_cycle(hardware: "Hardware | None", sim: Sim, node: int, now: int) -> bool:
    """Let the RTL of the switch at a node pass on packets for a cycle; False: it has none."""
    return False


#: First words of what the loop puts into a memory channel's ports or takes from them.
_CHANNEL = Record(*((name, np.int64) for name in (
    "compute_valid", "compute", "inbound_valid", "inbound", "dram_ready", "occupancy", "retirement", "compute_ready",
    "inbound_ready", "dram_valid", "dram")))


class ChannelPorts(NamedTuple):
    """Word offsets of each channel's ports, as in `Ports`, side by side."""

    RECORDS = (_CHANNEL,)

    compute_valid: np.ndarray
    compute: np.ndarray
    inbound_valid: np.ndarray
    inbound: np.ndarray
    dram_ready: np.ndarray
    occupancy: np.ndarray
    retirement: np.ndarray
    compute_ready: np.ndarray
    inbound_ready: np.ndarray
    dram_valid: np.ndarray
    dram: np.ndarray


def channel_ports(ports: Ports) -> ChannelPorts:
    """Lay the channels' ports side by side; of one channel with an empty place beside it, see `Record.arrays`."""
    channels = len(ports.dram)
    arrays = _CHANNEL.arrays(max(2, channels))
    for name, offsets in arrays.items():
        offsets[:channels] = getattr(ports, name)
    return ChannelPorts(**arrays)


class Hardware(NamedTuple):
    """One RTL instance per simulated GPU."""

    ports: Ports
    channels: ChannelPorts
    step: Callable  # C function of a handle
    handle: np.ndarray  # int64 [gpu]
    inputs: np.ndarray  # int64 [gpu]: address of the instance's input words
    outputs: np.ndarray
    requests: np.ndarray  # int64 [gpu, request]: for workgroups, in their order, as the RTL's port has them
    requested: np.ndarray  # int64 [gpu]: how many of them the RTL has taken
    asks: np.ndarray  # int64 [gpu, ask]: of the ready table, in their order, as the RTL's port has them
    answered: np.ndarray  # int64 [gpu]: how many of them were
    part: np.ndarray  # int64 [gpu, lane, _LANE]: of K, of what an egress lane makes packets of, one after the other
    parts_in: np.ndarray  # int64 [gpu, lane]: how many it was given
    parts_out: np.ndarray  # int64 [gpu, lane]: how many of them have left
    switch_step: Callable  # as `step`, of the switch
    switch: SwitchHardware

    def memory_cycle(self, sim: Sim, gpu: int, now: int) -> None:
        _memory_cycle(self, sim, words_at(self.inputs[gpu]), words_at(self.outputs[gpu]), gpu, now)

    def egress_cycle(self, sim: Sim, gpu: int, now: int) -> None:
        _egress_cycle(self, sim, words_at(self.inputs[gpu]), words_at(self.outputs[gpu]), gpu, now)

    def may_start(self, gpu: int) -> bool:
        words_at(self.inputs[gpu])[self.ports.start] = 1
        return words_at(self.outputs[gpu])[self.ports.grant] & 1 != 0

    def inputs_complete(self, gpu: int, asks: int) -> bool:
        return self.answered[gpu] >= asks

    def nothing_to_start(self, gpu: int) -> None:
        words_at(self.inputs[gpu])[self.ports.start] = 0

    def show_producer(self, gpu: int, active: bool) -> None:
        words_at(self.inputs[gpu])[self.ports.producer_active] = active

    def side_signals(self, sim: Sim, gpu: int, now: int) -> None:
        ports, control = self.ports, sim.control
        inputs, outputs = words_at(self.inputs[gpu]), words_at(self.outputs[gpu])
        offer_request(self, gpu, inputs, outputs)
        offer_ask(self, gpu, inputs, outputs)
        _heads_cycle(ports, sim, inputs, outputs, gpu, now)
        ready = 0 if held_back(sim.chaos, gpu) else 1
        inputs[ports.event_ready] = ready
        if ready and outputs[ports.event_valid]:
            lo, hi = outputs[ports.event], outputs[ports.event + 1]
            workgroup = bits.get(lo, hi, ports.event_wg_lsb, sim.b.wg_bits)
            wavefront = bits.get(lo, hi, ports.event_wf_lsb, sim.b.wf_bits)
            control.events[gpu, workgroup, wavefront] += 1
            control.event_count[gpu] += 1
            control.rs_end[gpu] = now

    def clock_edge(self, gpu: int) -> None:
        self.step(self.handle[gpu])

    def switch_cycle(self, sim: Sim, node: int, now: int) -> bool:
        there = len(self.switch.handle) > 0
        if there:
            run_switch(self.switch, self.switch_step, sim, node, now)
        return there


@compiled
def offer_request(hardware: Hardware, gpu: int, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """Offer the next request for a workgroup to the RTL's queue, which takes it if it is ready in this cycle."""
    ports, requested = hardware.ports, hardware.requested[gpu]
    if requested < hardware.requests.shape[1]:
        inputs[ports.dispatch_valid] = 1
        inputs[ports.dispatch] = hardware.requests[gpu, requested]
        hardware.requested[gpu] += outputs[ports.dispatch_ready]
    else:
        inputs[ports.dispatch_valid] = 0


@compiled
def offer_ask(hardware: Hardware, gpu: int, inputs: np.ndarray, outputs: np.ndarray) -> None:
    """Offer the next ask to the RTL's ready table, if there is any."""
    ports, answered = hardware.ports, hardware.answered[gpu]
    if answered < hardware.asks.shape[1]:
        inputs[ports.ask_valid] = 1
        inputs[ports.ask] = hardware.asks[gpu, answered]
        hardware.answered[gpu] += outputs[ports.ask_ready]
    elif hardware.asks.shape[1]:
        inputs[ports.ask_valid] = 0


@compiled
def _heads_cycle(ports: Ports, sim: Sim, inputs: np.ndarray, outputs: np.ndarray, gpu: int, now: int) -> None:
    """Put the window's head onto the links to those that send to this GPU, and one of a peer to the hardware."""
    network = sim.network
    inputs[ports.head_ready] = 0
    if outputs[ports.head_valid]:
        head = outputs[ports.head_packet]
        port = links.port_to(network, gpu, links.head_destination(head, sim.b))
        if port == links.NO_PORT:
            inputs[ports.head_ready] = 1
            network.unroutable[gpu] += 1
        elif links.can_send_head(network, port, now) and not held_back(sim.chaos, gpu):
            inputs[ports.head_ready] = 1
            links.send_head(network, port, now, extra_delay(sim.chaos, gpu), head, sim.b)
    heard = network.heard
    inputs[ports.heard_valid] = heard.count[gpu] > 0
    if heard.count[gpu] > 0:
        head = heard.lo[gpu, heard.head[gpu]]
        inputs[ports.heard] = links.head_arrival(head, sim.b)
        queues.pop_timed(heard, gpu)


@whole
def _memory_cycle(hardware: Hardware, sim: Sim, inputs: np.ndarray, outputs: np.ndarray, gpu: int,
                  now: int) -> None:
    for first in range(0, sim.mem.m.channels, PLACES):
        count = sim.mem.m.channels - first
        due = memory.due_channels(sim.mem, gpu, first, now)
        offered, last = 0, first + min(count, PLACES)
        while last > first:
            last -= 1
            offered = offered << 1 | outputs[hardware.channels.dram_valid[last]] & 1
        due |= offered
        refused = outputs[hardware.ports.refused + (first >> 6)] >> (first & 63)
        due |= refused & memory.places(count)
        if sim.chaos.hold_back > 0:
            due = memory.places(count)
        while due:
            i = lowest_bit(due)
            due &= due - 1
            _channel_cycle(hardware, sim, inputs, outputs, gpu, first + i, refused >> i & 1, now)


@inlined
def _channel_cycle(hardware: Hardware, sim: Sim, inputs: np.ndarray, outputs: np.ndarray, gpu: int, channel: int,
                   refused: int, now: int) -> None:
    """Run a channel for a cycle that is due; the words of one that is not stay as they are."""
    ports, row = hardware.channels, gpu * sim.mem.m.channels + channel
    occupancy, room = sim.mem.hbm.channels[row].occupancy, memory.has_room(sim.mem, row, now)
    bucket = memory.dram_cycle(sim.mem, sim.network, gpu, row, now)
    inputs[ports.retirement[channel]] = 0 if bucket < 0 else 1 | (bucket << 1)
    inputs[ports.occupancy[channel]] = occupancy
    ready = room and not held_back(sim.chaos, gpu)
    inputs[ports.dram_ready[channel]] = ready
    if ready and outputs[ports.dram_valid[channel]]:
        at = ports.dram[channel]
        lo, hi = outputs[at], outputs[at + 1]
        bucket = bits.get(lo, hi, sim.b.dram_bucket, sim.b.bucket_bits)
        memory.dram_accept(sim.mem, row, now, lo, bits.request_of(hi, sim.b), _tag_of(sim, row, lo, hi), bucket)
    if refused:
        queues.drop_tag(sim.mem.inbound_tags, row)
    offers = _offer(sim.mem.compute, sim.mem.compute_tags, row, inputs, outputs, ports.compute_valid[channel],
                    ports.compute[channel], ports.compute_ready[channel])
    offers |= _offer(sim.mem.inbound, sim.mem.inbound_tags, row, inputs, outputs, ports.inbound_valid[channel],
                     ports.inbound[channel], ports.inbound_ready[channel])
    if offers or sim.mem.hbm.channels[row].occupancy != occupancy or memory.has_room(sim.mem, row, now + 1) != room:
        sim.mem.due[row] = now + 1


@inlined
def _tag_of(sim: Sim, row: int, lo: int, hi: int) -> int:
    """Return the tag of a DRAM command of the RTL.

    A channel keeps the order within each stream, so the oldest tag is the right one. DMA reads are the RTL's own.
    """
    if not bits.get(lo, hi, sim.b.dram_communication, 1):
        return queues.pop_tag(sim.mem.compute_tags, row)
    if bits.get(lo, hi, sim.b.op, 2) != bits.READ:
        return queues.pop_tag(sim.mem.inbound_tags, row)
    return queues.tag_of(sim.hardware_stream, 0)


@inlined
def _offer(queue: RequestQueue, tags: TagQueue, row: int, inputs: np.ndarray, outputs: np.ndarray, valid: int,
           payload: int, ready: int) -> bool:
    """Offer the head of a queue, if it has one, to a stream of the RTL; it leaves if the RTL takes it in this cycle."""
    offers = queue.count[row] > 0
    if offers:
        at = queue.head[row]
        inputs[valid] = 1
        inputs[payload] = queue.lo[row, at]
        inputs[payload + 1] = queue.hi[row, at]
        if outputs[ready]:
            queues.push_tag(tags, row, queue.tag[row, at])
            queues.pop(queue, row)
    else:
        inputs[valid] = 0
    return offers


@compiled
def _egress_cycle(hardware: Hardware, sim: Sim, inputs: np.ndarray, outputs: np.ndarray, gpu: int,
                  now: int) -> None:
    ports = hardware.ports
    for lane in range(len(ports.outbound)):
        if outputs[ports.packet_valid[lane]]:
            at = ports.packet[lane]
            port = links.port_for(sim.network, gpu, links.destination_of(outputs[at + 1], sim.b), outputs[at], sim.b)
            known = port != links.NO_PORT
            accepted = (not known or links.can_send(sim.network, port, now)) and not held_back(sim.chaos, gpu)
            inputs[ports.packet_ready[lane]] = accepted
            part = hardware.part[gpu, lane, hardware.parts_out[gpu, lane] & (_LANE - 1)]
            hardware.parts_out[gpu, lane] += accepted
            if accepted and not known:
                sim.network.injected[gpu] += 1
                sim.network.unroutable[gpu] += 1
            elif accepted:
                _send(sim, gpu, part, port, outputs[at], outputs[at + 1], now)
        else:
            inputs[ports.packet_ready[lane]] = 0
        dma, units = links.NO_PORT, links.NO_PORT
        first = sim.network.first_out[gpu]
        count = sim.network.first_out[gpu + 1] - first
        for i in range(count):  # which port's lines go first changes from cycle to cycle
            port = sim.network.ports_out[first + (now + i) % count]
            if _takes_lines(sim, gpu, port, now):
                if sim.mem.dma_returns.count[port] > 0 and dma < 0 and (
                        sim.mem.dma_returns.time[port, sim.mem.dma_returns.head[port]] <= now):
                    dma = port
                if sim.stores_out.count[port] > 0 and units < 0:
                    units = port
        valid, payload, ready = ports.outbound_valid[lane], ports.outbound[lane], ports.outbound_ready[lane]
        if dma >= 0 and (units < 0 or (now + lane) & 1):
            if outputs[ready]:
                _count_copies(hardware, sim, gpu, lane, sim.mem.dma_returns, dma)
            _offer_timed(sim.mem.dma_returns, sim.control.inside, dma, inputs, outputs, valid, payload, ready)
        elif units >= 0:
            if outputs[ready]:
                _count_copies(hardware, sim, gpu, lane, sim.stores_out, units)
            _offer_timed(sim.stores_out, sim.control.inside, units, inputs, outputs, valid, payload, ready)
        else:
            inputs[valid] = 0


@inlined
def _takes_lines(sim: Sim, gpu: int, port: int, now: int) -> bool:
    """Return whether lines for a port may go into the egress lanes.

    With several ports only what the port has room for may, or a full one would hold up the lines of the others. One
    port's lines may wait there.
    """
    return not sim.control.picks_ports[gpu] or (
        links.backlog(sim.network, port, now) + sim.control.inside[port] * LINE_BYTES < sim.network.buffer_bytes[port])


@inlined
def _count_copies(hardware: Hardware, sim: Sim, gpu: int, lane: int, queue: TimedQueue, port: int) -> None:
    """Count the first line that waits for a port at the others through which it will leave, too; note its part."""
    at, ports = queue.head[port], sim.mem.region_ports
    region = bits.get(queue.lo[port, at], queue.hi[port, at], sim.b.region, sim.b.region_bits)
    for copy in range(ports.shape[2]):
        if copy > 0:
            if ports[gpu, region, copy] == links.NO_PORT:
                continue
            sim.control.inside[ports[gpu, region, copy]] += 1
        hardware.part[gpu, lane, hardware.parts_in[gpu, lane] & (_LANE - 1)] = queues.number_of(
            queue.tag[port, at])
        hardware.parts_in[gpu, lane] += 1


@inlined
def _send(sim: Sim, gpu: int, part: int, port: int, lo: int, hi: int, now: int) -> None:
    """Send a packet onto its link; its tag says whose it is, and of which part of K."""
    size = bits.get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes)
    tag = queues.tag_of(sim.hardware_stream, queues.sent_by(gpu, part))
    if sim.control.rs_start[gpu] < 0:
        sim.control.rs_start[gpu] = now
    sim.control.inside[port] -= 1
    sim.network.injected[gpu] += 1
    if sim.network.mirrored and sim.switch.gpus == 0:  # else the switch mirrors what it passes on
        links.send_mirrored(sim.network, sim.b, port, now, size, lo, hi, tag)
    else:
        links.send(sim.network, port, now, size, extra_delay(sim.chaos, gpu), lo, hi, tag)


@inlined
def _offer_timed(queue: TimedQueue, inside: np.ndarray, port: int, inputs: np.ndarray, outputs: np.ndarray,
                 valid: int, payload: int, ready: int) -> None:
    """Offer only when it will be taken: the source may change from cycle to cycle, a held offer must not."""
    if not outputs[ready]:
        inputs[valid] = 0
        return
    at = queue.head[port]
    inputs[valid] = 1
    inputs[payload] = queue.lo[port, at]
    inputs[payload + 1] = queue.hi[port, at]
    inside[port] += 1
    queues.pop_timed(queue, port)


class StepsInPython(Observer):
    """Clock edges of backends that are no compiled design, called from the compiled loop.

    Nothing can be raised through compiled code: what a backend raises (Ctrl-C too) ends the loop and is raised then.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._raised: BaseException | None = None
        self.function = _STEP(self._step)

    def _step(self, gpu: int) -> None:
        if self._raised is None:
            try:
                self._backends[gpu].step()
            except BaseException as error:
                self._raised = error

    def after(self, now: int) -> None:
        if self._raised is not None:
            raise self._raised


def make_hardware(backends: Sequence[Backend], ports: Ports, requests: np.ndarray,
                  asks: np.ndarray | None = None) -> tuple[Hardware, StepsInPython | None]:
    """Put backends of one kind together as the loop sees them.

    If they are stepped in Python, it also gives the observer that does it.

    `requests`: int64[gpu, request], each a payload of the RTL's `dispatch`; `asks`: the same of `asks`, if any.
    """
    design = backends[0].design
    python = StepsInPython(backends) if design is None else None

    def addresses(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.array([array.ctypes.data for array in arrays], np.int64)
    if python is not None:
        step, handles = python.function, list(range(len(backends)))
    else:  # compiled: each backend has a handle
        step, handles = design.step, [backend.handle for backend in backends]  # pyright: ignore
    lanes = len(backends), len(ports.outbound)
    return Hardware(ports, channel_ports(ports), step, np.array(handles, np.int64),
                    addresses([backend.inputs for backend in backends]),
                    addresses([backend.outputs for backend in backends]), requests,
                    np.zeros(len(backends), np.int64),
                    np.zeros((len(backends), 0), np.int64) if asks is None else asks,
                    np.zeros(len(backends), np.int64), np.zeros((*lanes, _LANE), np.int64),
                    np.zeros(lanes, np.int64), np.zeros(lanes, np.int64), step, no_switch()), python
