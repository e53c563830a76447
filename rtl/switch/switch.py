"""A switch between GPUs that adds and copies, wired."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.control.apb import apb_signature
from t3sim.rtl.control.event_counter import EventCounter
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import Op
from t3sim.rtl.registers import EPOCH_BITS, SWITCH_COUNTERS, SWITCH_TIMEOUT_BITS, switch_registers
from t3sim.rtl.streams.counting import ones
from t3sim.rtl.streams.pointer_queue import PointerQueue
from t3sim.rtl.streams.rotating_grant import join
from t3sim.rtl.switch.credited_input import CreditedInput
from t3sim.rtl.switch.credited_output import CreditedOutput
from t3sim.rtl.switch.merge_table import MergeTable
from t3sim.rtl.switch.multicast import Multicast
from t3sim.rtl.switch.packets import SwitchError, bound_packet, is_over, merge_event, switch_packet
from t3sim.rtl.switch.switch_bus import SwitchBus

_OF_TABLES = {"begun": "begins", "joined": "joins", "completed": "completes", "refused": "refuses",
              "evicted": "evicts", "expired": "expires"}


class Switch(wiring.Component):
    """N ports, each the ends of a GPU's two links (T3 paper, section 7.4; NVLink SHARP; CAIS, HPCA 2026).

    1. A packet is copied to each port of its mask. At each port an UPDATE enters the port's merge table, and other
       packets bypass it. Both take turns on the port's link.
    2. Packets that are not UPDATEs keep their order from one GPU to another. A packet of region 0, which no Tracker
       counts (such as a word of a command queue), also waits until earlier UPDATEs of its GPU to that port have left,
       because its order alone signals that they did.
    3. Parts of different kernels are never added. Packets of a kernel that is over (register EPOCH) are flushed and
       dropped with an error.
    4. A packet waits only for a credit of its output port, for the packet before it of its own GPU, or for sums that
       leave after `timeout` at the latest. UPDATEs do not wait for other parts of their sum.
    5. A GPU that returns no credits eventually stops all GPUs that send to it, because a link's credits are shared by
       all destinations. STARVED names it. A flush frees the others, because dropped packets cost no credit. RESTORE
       returns all credits of a port whose GPU was reset alone.

    Members
    -------
    apb : In(apb_signature)
        Registers, as in SwitchBus.
    arriving : In(valid, bound_packet).array(ports)
        From a GPU. Costs it one of `buffer_packets` credits.
    returned : Out(1).array(ports)
        Pulse: the GPU's credit returns.
    leaving : Out(valid, switch_packet).array(ports)
        To a GPU. Costs the switch one of `buffer_packets` credits.
    taken : In(1).array(ports)
        Pulse: the switch's credit returns.
    counters : Out(32).array(len(SWITCH_COUNTERS))
        Modulo 2^32, of events until three cycles ago.
    holds : Out(...).array(ports)
        Sums in each table.
    error : Out(1)
        Level: an error is latched.
    busy : Out(1)
        A packet or sum is inside, or a GPU has not returned a credit.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        ports = geometry.switch.ports
        self._tables = [MergeTable(geometry) for _ in range(ports)]
        super().__init__({
            "apb": In(apb_signature(switch_registers(geometry).address_bits)),
            "arriving": In(data.StructLayout({"valid": 1, "payload": bound_packet(geometry)})).array(ports),
            "returned": Out(1).array(ports),
            "leaving": Out(data.StructLayout({"valid": 1, "payload": switch_packet(geometry)})).array(ports),
            "taken": In(1).array(ports),
            "counters": Out(32).array(len(SWITCH_COUNTERS)),
            "holds": Out(self._tables[0].holds.shape()).array(ports),
            "happened": Out(merge_event(geometry)).array(ports),
            "error": Out(1),
            "busy": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        g, ports, tables = self._geometry, self._geometry.switch.ports, self._tables
        layout, places = switch_packet(g), g.switch.buffer_packets
        inputs = [CreditedInput(bound_packet(g), places) for _ in range(ports)]
        outputs = [CreditedOutput(layout, places) for _ in range(ports)]
        multicasts = [Multicast(g) for _ in range(ports)]
        past = [PointerQueue(layout, 2) for _ in range(ports)]
        m.submodules.bus = bus = SwitchBus(g)
        wiring.connect(m, wiring.flipped(self.apb), bus.apb)
        for name, parts in (("input", inputs), ("output", outputs), ("multicast", multicasts), ("table", tables),
                            ("past", past)):
            for number, part in enumerate(parts):
                m.submodules[f"{name}_{number}"] = part
        for number in range(ports):
            wiring.connect(m, inputs[number].packets, multicasts[number].packets)
            m.d.comb += [
                inputs[number].arriving.eq(self.arriving[number]),
                self.returned[number].eq(inputs[number].returned),
                self.leaving[number].eq(outputs[number].leaving),
                outputs[number].returned.eq(self.taken[number]),
                tables[number].whole.eq(bus.whole),
                tables[number].timeout.eq(bus.timeout),
                tables[number].oldest.eq(bus.epoch),
                tables[number].flush.eq(bus.flush),
                self.holds[number].eq(tables[number].holds),
                self.happened[number].eq(tables[number].happened),
            ]

        # At each port: UPDATEs to its table, others past it.
        for number in range(ports):
            table, copies = tables[number], [one.copies[number] for one in multicasts]
            adds = [copy.payload.request.op == Op.UPDATE for copy in copies]
            waits = [(copy.payload.request.region == 0) & table.pending[source] for source, copy in enumerate(copies)]
            goes_past = join(m, [copy.valid & ~add & ~wait for copy, add, wait in zip(copies, adds, waits)],
                             [copy.payload for copy in copies], past[number].input)
            for source, (copy, add, wait) in enumerate(zip(copies, adds, waits)):
                m.d.comb += [
                    table.parts[source].valid.eq(copy.valid & add),
                    table.parts[source].payload.eq(copy.payload),
                    copy.ready.eq(Mux(add, table.parts[source].ready, goes_past[source] & ~wait)),
                ]

        # Then to its link, unless its kernel is over.
        drops = []
        for number in range(ports):
            sums, others = tables[number].sums, past[number].output
            sum_over, other_over = Signal(name=f"sum_over_{number}"), Signal(name=f"other_over_{number}")
            goes = join(m, [sums.valid & ~sum_over, others.valid & ~other_over],
                        [sums.payload.packet, others.payload], outputs[number].packets)
            m.d.comb += [
                sum_over.eq(is_over(sums.payload.packet.epoch, bus.epoch)),
                other_over.eq(is_over(others.payload.epoch, bus.epoch)),
                sums.ready.eq(sum_over | goes[0]),
                others.ready.eq(other_over | goes[1]),
            ]
            drops += [{"port": number, "when": sums.valid & sum_over, "packet": sums.payload.packet},
                      {"port": number, "when": others.valid & other_over, "packet": others.payload}]

        # A port is starved when a packet has waited for a credit from one look to the next.
        elapsed = Signal(SWITCH_TIMEOUT_BITS)
        look = Signal()
        m.d.comb += look.eq(elapsed >= bus.timeout)
        m.d.sync += elapsed.eq(Mux(look, 1, elapsed + 1))
        for number, output in enumerate(outputs):
            waits = Signal(name=f"waits_{number}")
            seen = Signal(name=f"seen_{number}")
            starved = Signal(name=f"starved_{number}")
            m.d.comb += [waits.eq(output.packets.valid & ~output.packets.ready), bus.starved[number].eq(starved),
                         output.restore.eq(bus.restore[number])]
            m.d.sync += [seen.eq(waits & (seen | look)), starved.eq(waits & (starved | (seen & look)))]

        left = [one.packets.valid & one.packets.ready for one in outputs]
        events = {"arrived": [one.arriving.valid & ~one.overrun for one in inputs], "left": left,
                  "dropped": [one["when"] for one in drops]} | {
            name: [table.happened[event] for table in tables] for name, event in _OF_TABLES.items()}
        for number, (name, _) in enumerate(SWITCH_COUNTERS):
            m.submodules[name] = counter = EventCounter()
            m.d.comb += [counter.amount.eq(ones(events[name])), counter.clear.eq(bus.clear_counters),
                         self.counters[number].eq(counter.total), bus.counters[number].eq(counter.total)]

        # Errors, in the order of their codes.
        errors = []
        for port, (one, multicast, table, output) in enumerate(zip(inputs, multicasts, tables, outputs)):
            came, head, event = one.arriving.payload.packet, one.packets.payload.packet, table.happened
            epoch = Signal(EPOCH_BITS, name=f"epoch_{port}")  # of the part that the table takes
            for source, part in enumerate(table.parts):
                with m.If(event.source == source):
                    m.d.comb += epoch.eq(part.payload.epoch)
            from_here, of_part = {"port": port, "source": port}, {"port": port, "source": event.source, "epoch": epoch}
            errors += [
                {"when": one.overrun, "code": SwitchError.OVERRUN, **from_here, "epoch": came.epoch,
                 "address": came.request.address},
                {"when": multicast.nowhere, "code": SwitchError.NOWHERE, **from_here, "epoch": head.epoch,
                 "address": head.request.address},
                {"when": event.refuses & ~event.repeats, "code": SwitchError.REFUSED, **of_part,
                 "address": event.address},
                {"when": event.repeats, "code": SwitchError.REPEATED, **of_part, "address": event.address},
                {"when": output.excess, "code": SwitchError.EXCESS, "port": port, "source": 0, "epoch": 0,
                 "address": 0},
                *({"when": one["when"], "code": SwitchError.STALE, "port": port, "source": 0,
                   "epoch": one["packet"].epoch, "address": one["packet"].request.address}
                  for one in drops if one["port"] == port)]
        errors.sort(key=lambda error: error["code"].value)
        happens = Signal(len(errors))
        m.d.comb += [happens.eq(Cat(error["when"] for error in errors)),
                     bus.several.eq((happens & (happens - 1)).any()), self.error.eq(bus.error)]
        for error in reversed(errors):
            with m.If(error["when"]):
                m.d.comb += [bus.report[name].eq(error[name]) for name, _ in bus.report.shape()]

        m.d.comb += self.busy.eq(Cat(
            *(one.packets.valid for one in inputs), *(table.busy for table in tables),
            *(one.output.valid for one in past), *(~one.rests for one in outputs)).any())
        m.d.comb += bus.busy.eq(self.busy)
        return m
