"""A switch between GPUs that adds and copies, wired."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..control.event_counter import EventCounter
from ..geometry import Geometry
from ..layouts import Op
from ..streams.counting import ones
from ..streams.pointer_queue import PointerQueue
from ..streams.rotating_grant import join
from .credited_input import CreditedInput
from .credited_output import CreditedOutput
from .merge_table import TIMEOUT_BITS, MergeTable
from .multicast import Multicast
from .packets import SwitchError, bound_packet, merge_event, switch_error, switch_packet

#: Events that a switch counts, those of all its ports together.
SWITCH_COUNTERS = ("arrived", "left", "begun", "joined", "completed", "refused", "evicted", "expired")
_OF_TABLES = {"begun": "begins", "joined": "joins", "completed": "completes", "refused": "refuses",
              "evicted": "evicts", "expired": "expires"}


class Switch(wiring.Component):
    """N ports, each the ends of a GPU's two links (T3 paper, section 7.4; NVLink SHARP; CAIS, HPCA 2026).

    A packet goes to each port of its mask: an UPDATE to the port's merge table, anything else past it. What leaves the
    table and what goes past it take turns on the port's link. Order is kept between packets of one GPU to another that
    are no UPDATEs; an UPDATE and another packet may overtake each other.

    An UPDATE never waits for another of its sum, nor a port for another port: what waits, waits for a credit of the
    port that it goes to, or for the packet before it of its own GPU.

    Members
    -------
    arriving : In(valid, bound_packet).array(ports)
        From a GPU. Costs it one of `buffer_packets` credits.
    returned : Out(1).array(ports)
        Pulse: it has the credit back.
    leaving : Out(valid, switch_packet).array(ports)
        To a GPU. Costs this end one of as many credits.
    taken : In(1).array(ports)
        Pulse: it comes back.
    whole : In(part_bits)
        Parts of a sum. It does not change while the switch is busy.
    timeout : In(TIMEOUT_BITS)
        As `MergeTable`.
    counters : Out(32).array(len(SWITCH_COUNTERS))
        Modulo 2^32, of events until three cycles ago.
    holds : Out(...).array(ports)
        Sums in each table.
    happened : Out(merge_event).array(ports)
        In each table.
    error : Out(switch_error)
        The first since reset or `clear_error`.
    clear_error : In(1)
    busy : Out(1)
        Something is in here, or a GPU has not given back a credit.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        ports = geometry.switch.ports
        self._tables = [MergeTable(geometry) for _ in range(ports)]
        super().__init__({
            "arriving": In(data.StructLayout({"valid": 1, "payload": bound_packet(geometry)})).array(ports),
            "returned": Out(1).array(ports),
            "leaving": Out(data.StructLayout({"valid": 1, "payload": switch_packet(geometry)})).array(ports),
            "taken": In(1).array(ports),
            "whole": In(geometry.switch.part_bits),
            "timeout": In(TIMEOUT_BITS),
            "counters": Out(32).array(len(SWITCH_COUNTERS)),
            "holds": Out(self._tables[0].holds.shape()).array(ports),
            "happened": Out(merge_event(geometry)).array(ports),
            "error": Out(switch_error(geometry)),
            "clear_error": In(1),
            "busy": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        g, ports, tables = self._geometry, self._geometry.switch.ports, self._tables
        layout, places = switch_packet(g), g.switch.buffer_packets
        inputs = [CreditedInput(bound_packet(g), places) for _ in range(ports)]
        outputs = [CreditedOutput(layout, places) for _ in range(ports)]
        copies = [Multicast(g) for _ in range(ports)]
        past = [PointerQueue(layout, 2) for _ in range(ports)]
        for name, parts in (("input", inputs), ("output", outputs), ("multicast", copies), ("table", tables),
                            ("past", past)):
            for number, part in enumerate(parts):
                m.submodules[f"{name}_{number}"] = part

        for number in range(ports):
            wiring.connect(m, inputs[number].packets, copies[number].packets)
            m.d.comb += [
                inputs[number].arriving.eq(self.arriving[number]),
                self.returned[number].eq(inputs[number].returned),
                self.leaving[number].eq(outputs[number].leaving),
                outputs[number].returned.eq(self.taken[number]),
                tables[number].whole.eq(self.whole),
                tables[number].timeout.eq(self.timeout),
                self.holds[number].eq(tables[number].holds),
                self.happened[number].eq(tables[number].happened),
            ]
            self._to_port(m, number, [one.copies[number] for one in copies], past[number], outputs[number])

        left = [(one.packets.valid & one.packets.ready) for one in outputs]
        events = {"arrived": [one.arriving.valid & ~one.overrun for one in inputs], "left": left} | {
            name: [table.happened[event] for table in tables] for name, event in _OF_TABLES.items()}
        for number, name in enumerate(SWITCH_COUNTERS):
            m.submodules[name] = counter = EventCounter()
            m.d.comb += [counter.amount.eq(ones(events[name])), self.counters[number].eq(counter.total)]

        addresses = [one.arriving.payload.packet.request.address for one in inputs]
        heads = [one.packets.payload.packet.request.address for one in inputs]
        looked_at = [table.happened.address for table in tables]
        errors = [(SwitchError.OVERRUN, [one.overrun for one in inputs], addresses),
                  (SwitchError.NOWHERE, [one.nowhere for one in copies], heads),
                  (SwitchError.EXPIRED, [table.happened.expires for table in tables], looked_at),
                  (SwitchError.REFUSED, [table.happened.refuses for table in tables], looked_at),
                  (SwitchError.EXCESS, [one.excess for one in outputs], [0] * ports)]
        with m.If(self.clear_error):
            m.d.sync += self.error.eq(0)
        with m.If((self.error.code == SwitchError.NONE) | self.clear_error):
            for code, happens, address in reversed(errors):
                for port in reversed(range(ports)):
                    with m.If(happens[port]):
                        m.d.sync += [self.error.code.eq(code), self.error.port.eq(port),
                                     self.error.address.eq(address[port])]
        m.d.comb += self.busy.eq(Cat(
            *(one.packets.valid for one in inputs), *(table.busy for table in tables),
            *(one.output.valid for one in past), *(~one.rests for one in outputs)).any())
        return m

    def _to_port(self, m: Module, number: int, copies: list, past: PointerQueue, output: CreditedOutput) -> None:
        """Bring what is for a port to its link: UPDATEs through its table, others past it."""
        table = self._tables[number]
        adds = [copy.payload.request.op == Op.UPDATE for copy in copies]
        goes_past = join(m, [copy.valid & ~add for copy, add in zip(copies, adds)], [copy.payload for copy in copies],
                         past.input)
        for place, (copy, add) in enumerate(zip(copies, adds)):
            part = table.parts[place]
            m.d.comb += [
                part.valid.eq(copy.valid & add),
                part.payload.eq(copy.payload),
                copy.ready.eq(Mux(add, part.ready, goes_past[place])),
            ]
        goes = join(m, [table.sums.valid, past.output.valid],
                    [table.sums.payload.packet, past.output.payload], output.packets)
        m.d.comb += [table.sums.ready.eq(goes[0]), past.output.ready.eq(goes[1])]
