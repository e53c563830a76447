"""One GPU's Track & Trigger hardware, wired."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.arbiter.intensity_monitor import IntensityMonitor
from t3sim.rtl.arbiter.ring_monitor import RingMonitor
from t3sim.rtl.channel.memory_channel import MemoryChannel, is_watched
from t3sim.rtl.channel.memory_channel import is_tracked as counts_for_a_tile
from t3sim.rtl.control.apb import apb_signature
from t3sim.rtl.control.config_bus import ConfigBus
from t3sim.rtl.control.event_counter import EventCounter
from t3sim.rtl.control.soft_reset import SoftReset
from t3sim.rtl.control.watchdog import WatchDog
from t3sim.rtl.dma.address_generator import AddressGenerator
from t3sim.rtl.dma.command_queue import CommandQueue, OwedLines
from t3sim.rtl.dma.dma_table import DmaTable
from t3sim.rtl.dma.line_router import LineRouter
from t3sim.rtl.dma.read_credits import ReadCredits
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.layouts import (
    ErrorCode,
    dispatch,
    dma_command,
    dram_command,
    error_report,
    head_arrival,
    head_packet,
    in_one_line,
    is_tracked,
    mapping_tables,
    memory_sum,
    packet,
    queue_command,
    read_for,
    read_origins,
    ready_ask,
    request,
    retirement,
    trigger,
    word_write,
)
from t3sim.rtl.link.egress import Egress
from t3sim.rtl.link.ingress import Ingress, groups
from t3sim.rtl.order import follows
from t3sim.rtl.registers import ARRIVAL_RANGES, KERNEL_INSIDE, RESET_ENDS, WATCHDOG_PERIOD, register_map
from t3sim.rtl.streams.counting import ones
from t3sim.rtl.streams.rotating_grant import join
from t3sim.rtl.streams.two_entry_queue import TwoEntryQueue
from t3sim.rtl.track.tracker import TrackerBank
from t3sim.rtl.track.trigger_merge import TriggerMerge
from t3sim.rtl.track.update_network import UpdateNetwork
from t3sim.rtl.window.dispatch_window import DispatchWindow
from t3sim.rtl.window.head_exchange import HeadExchange
from t3sim.rtl.window.ready_table import ReadyTable


class GpuTop(wiring.Component):
    """Everything that T3 adds to one GPU's memory side (T3 paper, figures 8 and 9).

    Every output is a function of registers only, so a neighbour's reaction within the same cycle is never needed.

    Members
    -------
    compute, inbound : In(stream(request)).array(channels)
        This GPU's own accesses; what arrives from the link for this GPU's memory. A write to a mapped region that is
        not of one line, or has no bytes, is taken, reported (STORE_REFUSED) and goes nowhere.
    dram : Out(stream(dram_command)).array(channels)
    occupancy : In(occupancy_bits).array(channels)
        DRAM queue entries in use at the start of the cycle.
    refused : Out(channels)
        Which channels' arrivals were taken in the cycle before and dropped.
    retirement : In(retirement).array(channels)
        Tracked writes that DRAM performs.
    outbound : In(stream(request)).array(egress_lanes)
        Data of DMA reads, with the source that the read had, and stores of the compute units to remote-mapped tiles
        (source LOCAL).
    packets : Out(stream(packet)).array(egress_lanes)
        Towards the link.
    dispatch : In(stream(dispatch)), grant : Out({valid, id}), start : In(1), blocked : Out(1)
        Requests for workgroups, in order of dispatch, and which may start: see DispatchWindow.
    heads : Out(stream(head_packet)), heads_in : In(stream(head_arrival))
        Heads of dispatch windows on the links: of this GPU's to those that send to it, of those it sends to.
    head : Out(wg_bits + 1), peer_heads : Out(wg_bits + 1).array(peers)
        Dispatch windows of this GPU, and, as far as is known here, of those it sends to: for who watches.
    events : Out(stream(trigger))
        Complete tiles of event regions.
    producer_active : In(1)
        The producer kernel runs.
    irq : Out(1)
        Level: an error is latched; CONTROL.clear_error ends it.
    queue_reads : Out(stream(address)), queue_lines : In(stream(queue_command)), queue_writes : Out(stream(word_write))
        Only with a command queue: its way to memory. A word for another GPU follows the packets that have left, and
        arrives at its `inbound`, where it is checked: a STORE of 4 bytes, source DMA, region 0.
    sums : Out(memory_sum()).array(regions)
        Only with near-memory ALUs that need it: what memory adds of what is written under a region, see WideAlu.
    asks : In(stream(ready_ask))
        Only with a ready table: groups of workgroups whose inputs must be complete, see ReadyTable.
    apb : In(APB)
        Configuration and status (rtl/registers.py).
    """

    def __init__(self, geometry: Geometry):
        self._geometry = geometry
        channels, lanes = geometry.channel.channels, geometry.dma.egress_lanes
        index = geometry.tracker.wg_bits + 1
        queue = {} if not geometry.dma.queue_commands else {
            "queue_reads": Out(stream.Signature(geometry.tracker.address_bits)),
            "queue_lines": In(stream.Signature(queue_command(geometry))),
            "queue_writes": Out(stream.Signature(word_write(geometry))),
        }
        sums = {"sums": Out(memory_sum()).array(geometry.dma.regions)} if geometry.channel.wide_sums else {}
        ready = {} if not geometry.dma.ready_groups else {"asks": In(stream.Signature(ready_ask(geometry)))}
        super().__init__({
            **queue,
            **ready,
            **sums,
            "compute": In(stream.Signature(request(geometry))).array(channels),
            "inbound": In(stream.Signature(request(geometry))).array(channels),
            "refused": Out(channels),
            "dram": Out(stream.Signature(dram_command(geometry))).array(channels),
            "occupancy": In(geometry.channel.occupancy_bits).array(channels),
            "retirement": In(retirement(geometry)).array(channels),
            "outbound": In(stream.Signature(request(geometry))).array(lanes),
            "packets": Out(stream.Signature(packet(geometry))).array(lanes),
            "dispatch": In(stream.Signature(dispatch(geometry))),
            "grant": Out(data.StructLayout({"valid": 1, "id": geometry.tracker.wg_bits})),
            "start": In(1),
            "blocked": Out(1),
            "heads": Out(stream.Signature(head_packet(geometry))),
            "heads_in": In(stream.Signature(head_arrival(geometry))),
            "head": Out(index),
            "peer_heads": Out(index).array(geometry.dma.peers),
            "events": Out(stream.Signature(trigger(geometry))),
            "producer_active": In(1),
            "irq": Out(1),
            "apb": In(apb_signature(register_map(geometry).address_bits)),
        })

    def elaborate(self, platform):
        m = Module()
        g = self._geometry
        self._reports = []
        self._counts = {}
        queues = int(g.dma.queue_commands != 0)
        reporters = 2 * queues + g.tracker.banks + g.dma.engines + 2 * g.dma.egress_lanes + 2 * len(groups(g)) + 6
        m.submodules.bus = self._bus = ConfigBus(g, reporters=reporters)
        self._stopped = Signal()  # from a soft reset to the restart that follows
        self._clear = Signal()
        self._restart = Signal()  # a restart that is not refused
        self._forced = Signal()  # a soft reset ends though it waits
        self._channels(m)
        self._tracker(m)
        self._router(m)
        self._heads(m)
        self._engines(m)
        self._egress(m)
        self._ingress(m)
        self._soft_reset(m)
        self._watchdog(m)
        self._status(m)
        if g.channel.wide_sums:
            for asked, entry in zip(self.sums, self._bus.region):
                m.d.comb += [asked[name].eq(entry[name]) for name in memory_sum().members]
        return m

    def _add(self, m, name, block):
        """Add a block that a soft reset clears."""
        m.submodules[name] = SoftReset(block, self._clear)
        return block

    def _mappings(self, m, block):
        """Connect what a block knows of the tables that software maps address space with."""
        for name in mapping_tables(self._geometry):
            if name in block.signature.members:
                m.d.comb += [there.eq(here) for there, here in zip(getattr(block, name), getattr(self._bus, name))]

    def _channels(self, m):
        """Build the memory channels, and the monitors that their arbiters go by."""
        g, config = self._geometry, self._bus.levels
        self._monitor = monitor = self._add(m, "monitor", IntensityMonitor(g))
        self._ring_monitor = ring_monitor = self._add(m, "ring_monitor", RingMonitor(g))
        threshold = Signal(7)
        drain = Signal()
        m.d.sync += [
            # An empty DRAM queue always lets communication in: the producer may be waiting for it.
            threshold.eq(Mux(config.auto_threshold, monitor.threshold, config.threshold | (config.threshold == 0))),
            drain.eq(~self.producer_active | self._stopped),
        ]
        self._memory = []
        for c in range(g.channel.channels):
            channel = MemoryChannel(g)
            m.submodules[f"channel_{c}"] = channel
            self._memory.append(channel)
            wiring.connect(m, channel.dram, wiring.flipped(self.dram[c]))
            m.d.comb += [
                channel.occupancy.eq(self.occupancy[c]),
                channel.retirement.eq(self.retirement[c]),
                channel.policy.eq(config.policy),
                channel.threshold.eq(threshold),
                channel.starvation_limit.eq(config.starvation_limit),
                channel.drain.eq(drain),
                channel.ring_late.eq(ring_monitor.late),
                channel.forget.eq(self._stopped),
                monitor.occupancy[c].eq(self.occupancy[c]),
            ]
        # A write that reached into the next line could reach into another channel, whose reads would not wait for it.
        for index, channels in enumerate(groups(g)):
            refused = Signal(len(channels), name=f"stores_refused_{index}")
            report = Signal(error_report(g), name=f"store_report_{index}")
            self._reports.append(report)
            m.d.comb += report.code.eq(ErrorCode.STORE_REFUSED)
            m.d.sync += report.valid.eq(refused.any())
            for place, c in reversed(list(enumerate(channels))):
                access, store = self.compute[c], self.compute[c].payload
                lawful = Signal(name=f"store_lawful_{c}")
                m.d.comb += [
                    lawful.eq(~counts_for_a_tile(store) | in_one_line(store, g)),
                    self._memory[c].compute.payload.eq(store),
                    self._memory[c].compute.valid.eq(access.valid & lawful),
                    access.ready.eq(self._memory[c].compute.ready),
                    refused[place].eq(access.valid & access.ready & ~lawful),
                ]
                with m.If(refused[place]):
                    m.d.sync += [report.details[name].eq(store[name]) for name, _ in report.details.shape()]
        m.d.comb += [
            monitor.restart.eq(self._restart),
            monitor.producer_active.eq(self.producer_active),
            monitor.communication_seen.eq(Cat(channel.communication_waiting for channel in self._memory).any()),
            monitor.least.eq(config.least_samples),
            *(monitor.breakpoints[i].eq(config[f"breakpoint{i}"]) for i in range(3)),
            ring_monitor.stage.eq(config.stage),
            ring_monitor.restart.eq(self._restart),
        ]
        self._drain = drain

    def _tracker(self, m):
        """Connect updates from the channels to the Tracker's banks, and join the banks' triggers into one stream."""
        g = self._geometry
        self._network = network = self._add(m, "network", UpdateNetwork(g))
        self._merge = merge = self._add(m, "merge", TriggerMerge(g))
        for channel, port in zip(self._memory[1:], list(network.updates)[1:]):
            wiring.connect(m, channel.updates, port)
        tracked = [Signal(name=f"tracked_{region}") for region in range(g.dma.regions)]
        m.d.comb += [there.eq(is_tracked(entry)) for there, entry in zip(tracked, self._bus.region)]
        self._banks = []
        for b in range(g.tracker.banks):
            bank = self._add(m, f"tracker_{b}", TrackerBank(g))
            self._banks.append(bank)
            wiring.connect(m, network.banks[b], bank.updates)
            wiring.connect(m, bank.triggers, merge.triggers[b])
            self._reports.append(bank.error)
            if g.tracker.protection != "none":
                m.d.comb += self._bus.faults[b].eq(bank.fault)
            for region, entry in enumerate(self._bus.region):
                m.d.comb += [
                    bank.thresholds[region].eq(entry.threshold),
                    bank.tracked[region].eq(tracked[region]),
                    bank.families[region].eq(entry.family),
                ]
        accepted = Signal(g.tracker.banks)  # known late in a cycle, counted in the next one
        m.d.sync += accepted.eq(Cat(port.valid & port.ready for port in network.banks))
        self._counts["updates"] = ones(accepted)
        if g.tracker.protection != "none":
            faults = self._bus.faults
            self._counts["tracker_corrected"] = ones(fault.valid & ~fault.uncorrectable for fault in faults)
            self._counts["tracker_uncorrectable"] = ones(fault.valid & fault.uncorrectable for fault in faults)

    def _router(self, m):
        """Route complete tiles: each frees its window place and goes to the DMA table, out as an event, or both."""
        g, config = self._geometry, self._bus.levels
        self._window = window = self._add(m, "window", DispatchWindow(g))
        self._table = table = self._add(m, "table", DmaTable(g))
        events = self._add(m, "event_queue", TwoEntryQueue(trigger(g)))
        self._mappings(m, table)
        # Admissions share the first channel's way to the Tracker.
        sources = [self._memory[0].updates, window.admissions]
        goes = join(m, [source.valid for source in sources], [source.payload for source in sources],
                    self._network.updates[0])
        m.d.comb += [source.ready.eq(go) for source, go in zip(sources, goes)]
        wiring.connect(m, events.output, wiring.flipped(self.events))
        merged = self._merge.merged
        entry = Array(self._bus.region)[merged.payload.region]
        to_table = Signal()
        to_events = Signal()
        taken = Signal()
        own = Signal()
        report = Signal(error_report(g))
        m.d.comb += [
            window.upcoming.eq(self._merge.following),
            window.dispatch.payload.eq(self.dispatch.payload),
            window.dispatch.valid.eq(self.dispatch.valid & ~self._stopped),
            self.dispatch.ready.eq(window.dispatch.ready & ~self._stopped),
            to_table.eq(entry.send_dma),
            to_events.eq(entry.event),
            table.triggers.payload.eq(merged.payload),
            events.input.payload.eq(merged.payload),
            # Who gets a trigger gets it in the same cycle. Nobody gets one that its workgroup does not have.
            own.eq(merged.valid & ~window.foreign),
            table.triggers.valid.eq(own & to_table & (~to_events | events.input.ready)),
            events.input.valid.eq(own & to_events & (~to_table | table.triggers.ready)),
            merged.ready.eq((~to_table | table.triggers.ready) & (~to_events | events.input.ready)),
            taken.eq(merged.valid & merged.ready),
            window.completion.valid.eq(taken),
            *(window.completion[name].eq(merged.payload[name]) for name, _ in merged.payload.shape()),
            self.grant.valid.eq(window.grant.valid & ~self._stopped),
            self.grant.id.eq(window.grant.id),
            window.start.eq(self.start & ~self._stopped),
            self.blocked.eq(window.blocked),
            window.window.eq(config.window),
            window.restart.eq(self._restart),
            window.next_epoch.eq(config.epoch),
            report.code.eq(ErrorCode.REGION_UNCONFIGURED),
            table.clear_high_water.eq(self._bus.clear_counters),
            self._ring_monitor.pending.eq(table.ready_level != 0),
            self._ring_monitor.started.eq(self.grant.valid & self.start),
        ]
        if g.dma.ready_groups:
            ready = self._add(m, "ready", ReadyTable(g))
            wiring.connect(m, wiring.flipped(self.asks), ready.asks)
            m.d.comb += [
                ready.shift.eq(config.ready_shift),
                ready.restart.eq(self._restart),
                ready.completion.valid.eq(taken & own & to_events),
                ready.completion.wg.eq(merged.payload.wg),
            ]
        # The region was tracked when the tile was allocated and is not any more.
        m.d.sync += [
            report.valid.eq(taken & ~to_table & ~to_events),
            report.details.eq(merged.payload),
        ]
        self._reports += [window.error, report]
        self._counts["triggers"] = taken

    def _heads(self, m):
        """Heads of dispatch windows, by packets. No soft reset: a peer does not report again what it has reported."""
        config, window = self._bus.levels, self._window
        m.submodules.exchange = self._exchange = exchange = HeadExchange(self._geometry)
        wiring.connect(m, exchange.leaving, wiring.flipped(self.heads))
        wiring.connect(m, wiring.flipped(self.heads_in), exchange.arriving)
        m.d.comb += [
            exchange.head.eq(window.head),
            exchange.epoch.eq(window.epoch),
            exchange.number.eq(config.device_number),
            self.head.eq(window.head),
        ]
        for peer in range(self._geometry.dma.peers):
            m.d.comb += [
                exchange.heard[peer].eq(config[f"peer{peer}_heard"]),
                exchange.told[peer].device.eq(config[f"peer{peer}_told"]),
                exchange.told[peer].enable.eq(config[f"peer{peer}_telling"]),
                window.peer_heads[peer].eq(exchange.peer_heads[peer]),
                # A peer in no kernel is not in the same one.
                window.peer_epochs[peer].eq(Mux(exchange.peer_epochs[peer] == 0, ~window.epoch,
                                                exchange.peer_epochs[peer])),
                self.peer_heads[peer].eq(exchange.peer_heads[peer]),
            ]
        self._reports.append(exchange.error)

    def _engines(self, m):
        """Connect ready commands to the DMA engines, whose lines go to the memory channels as reads."""
        g = self._geometry
        m.submodules.line_router = self._lines = lines = LineRouter(g)
        for port, channel in zip(lines.channels, self._memory):
            wiring.connect(m, port, channel.dma)
        self._generators = []
        m.submodules.credits = self._credits = ReadCredits(g)
        for e in range(g.dma.engines):
            engine = self._add(m, f"engine_{e}", AddressGenerator(g))
            self._generators.append(engine)
            self._mappings(m, engine)
            self._reports.append(engine.error)
            wiring.connect(m, engine.lines, lines.lines[e])
            m.d.comb += engine.allow.eq(self._credits.allow)
        commands = self._commands(m)
        first = Signal(range(max(2, g.dma.engines)))  # engine that is asked first, in turn
        free = Cat(engine.command.ready for engine in self._generators)
        chosen = Signal(g.dma.engines)
        for start in range(g.dma.engines):
            with m.If(first == start):
                for offset in reversed(range(g.dma.engines)):
                    e = (start + offset) % g.dma.engines
                    with m.If(free[e]):
                        m.d.comb += chosen.eq(1 << e)
        m.d.comb += commands.ready.eq(free.any())
        for e, engine in enumerate(self._generators):
            m.d.comb += [
                engine.command.valid.eq(commands.valid & chosen[e]),
                engine.command.payload.eq(commands.payload),
            ]
        with m.If(commands.valid & commands.ready):
            m.d.sync += first.eq(Mux(first == g.dma.engines - 1, 0, first + 1))
        self._counts["commands"] = commands.valid & commands.ready
        for origin, issued in enumerate(self._credits.issued):
            m.d.comb += issued.eq(ones(engine.issued[origin] for engine in self._generators))
        self._counts["lines"] = ones(engine.issued.any() for engine in self._generators)

    def _commands(self, m):
        """Join the commands of complete blocks and those of a queue in memory."""
        g, table = self._geometry, self._table.commands
        if not g.dma.queue_commands:
            return table
        self._queue = queue = self._add(m, "queue", CommandQueue(g))
        m.submodules.owed_lines = self._owed_lines = owed = OwedLines(g)  # no soft reset: memory still owes them
        wiring.connect(m, queue.reads, owed.asked)
        wiring.connect(m, owed.reads, wiring.flipped(self.queue_reads))
        wiring.connect(m, wiring.flipped(self.queue_lines), owed.lines)
        wiring.connect(m, owed.wanted, queue.lines)
        wiring.connect(m, queue.writes, wiring.flipped(self.queue_writes))
        config = self._bus.levels
        both = stream.Signature(dma_command(g)).create()
        commands = [Signal(dma_command(g), name=name) for name in ("triggered", "copy")]
        goes = join(m, [table.valid, queue.copies.valid], commands, both)
        m.d.comb += [
            *(command[name].eq(port.payload[name]) for command, port in zip(commands, (table, queue.copies))
              for name, _ in trigger(g)),
            commands[1].copy.eq(1),
            owed.forget.eq(self._clear),
            *(port.ready.eq(go) for port, go in zip((table, queue.copies), goes)),
            queue.base.eq(Cat(config.queue_base_lo, config.queue_base_hi)),
            queue.doorbell.valid.eq(self._bus.rung),
            queue.stop.eq(self._stopped),
            queue.resume.eq(self._bus.resume_queue),
            queue.skip.eq(self._bus.skip_command),
            *(queue.words[name].eq(Cat(config[f"queue_words_{name}_lo"], config[f"queue_words_{name}_hi"]))
              for name in ("base", "limit")),
            queue.doorbell.place.eq(config.doorbell),
            queue.settled.eq(~(Cat(engine.copies for engine in self._generators).any() | self._credits.waits[1])),
            self._bus.queue_taken.eq(queue.taken),
        ]
        self._reports += [queue.error, owed.error]
        return both

    def _egress(self, m):
        """Connect lines to the link, addressed for their destination, but for data that nobody has asked for."""
        g, credits = self._geometry, self._credits
        self._lanes = []
        origins = range(read_origins(g))
        gone, strays = [[] for _ in origins], []
        for index in range(g.dma.egress_lanes):
            lane = Egress(g)
            m.submodules[f"egress_{index}"] = lane
            self._lanes.append(lane)
            self._mappings(m, lane)
            m.d.comb += lane.forget.eq(self._stopped)
            self._reports.append(lane.error)
            line = self.outbound[index]
            data_of = Signal(len(origins), name=f"data_{index}")
            stray = Signal(error_report(g), name=f"stray_{index}")
            m.d.comb += [
                data_of.eq(Mux(line.valid, read_for(line.payload, g), 0)),
                *(credits.came[origin][index].eq(data_of[origin] & line.ready) for origin in origins),
                lane.line.payload.eq(line.payload),
                lane.line.valid.eq(line.valid & ~credits.unasked[index]),
                line.ready.eq(lane.line.ready),
                stray.valid.eq(credits.unasked[index]),
                stray.code.eq(ErrorCode.DATA_UNEXPECTED),
                *(stray.details[name].eq(line.payload[name]) for name, _ in stray.details.shape()),
            ]
            self._reports.append(stray)
            strays.append(Mux(stray.valid, data_of, 0))
            wiring.connect(m, lane.packet, wiring.flipped(self.packets[index]))
            for origin in origins:
                gone[origin] += [lane.left[origin], lane.refused[origin]]
                if g.dma.copies > 1:
                    m.d.comb += credits.repeated[origin][index].eq(lane.repeated[origin])
        self._counts["packets"] = ones(port.valid & port.ready for port in self.packets)
        if g.dma.queue_commands:
            failures = [engine.failed for engine in self._generators] + [lane.refused for lane in self._lanes] + strays
            m.d.comb += self._queue.failed.eq(~self._stopped & Cat(whose[1] for whose in failures).any())
        m.d.comb += [
            *(credits.gone[origin].eq(ones(gone[origin])) for origin in origins),
            credits.hold.eq(self._stopped),
            credits.forget.eq(self._forced),
        ]

    def _ingress(self, m):
        """Connect what arrives from peers to the channels, unless it is refused."""
        g, config = self._geometry, self._bus.levels
        tracked = Signal(g.dma.regions)
        openings = [Signal(g.dma.regions, name=f"open_{i}") for i in range(ARRIVAL_RANGES)]
        m.d.comb += tracked.eq(Cat(is_tracked(entry) for entry in self._bus.region))
        m.d.sync += [opening.eq(tracked & Cat(entry.arrivals[i] for entry in self._bus.region))
                     for i, opening in enumerate(openings)]
        refused = []
        for index, channels in enumerate(groups(g)):
            ingress = Ingress(g)
            m.submodules[f"ingress_{index}"] = ingress
            self._reports.append(ingress.error)
            refused.append(ingress.refused)
            for c, arriving, accepted in zip(channels, ingress.arriving, ingress.accepted):
                wiring.connect(m, wiring.flipped(self.inbound[c]), arriving)
                wiring.connect(m, accepted, self._memory[c].inbound)
            for i, opening in enumerate(openings):
                m.d.comb += [ingress.open[i].eq(opening), *(
                    getattr(ingress, name)[i].eq(Cat(config[f"arrivals{i}_{name}_{half}"] for half in ("lo", "hi")))
                    for name in ("base", "last"))]
            m.d.comb += [
                ingress.head.eq(self._window.head),
                ingress.limit.eq(self._window.limit),
                ingress.tiles.eq(config.tiles),
                ingress.any_tile.eq(self._stopped),
            ]
        m.d.comb += self.refused.eq(Cat(refused))
        self._counts["arrivals_refused"] = ones(self.refused)

    def _soft_reset(self, m):
        """Let what is under way finish without being tracked or sent, then clear all that tracks and sends.

        Nothing that was accepted is taken back, and nothing new starts, until a restart. What was asked of DRAM comes
        back and is swallowed, tracked writes are performed and forgotten. When for `quiet_cycles` nothing of that has
        happened (packets of a neighbour that was reset later may still be on the link), everything is cleared at once.
        So it is after `reset_limit`, which is an error: what is waited for may never come.

        A restart is refused if it would not begin a kernel that is as new: while STATUS says that something of the one
        before is inside.
        """
        bus, config, status = self._bus, self._bus.levels, self._bus.status
        cleared = Signal()
        moving = Signal()
        quiet = Signal.like(config.quiet_cycles)
        lasted = Signal(len(config.reset_limit) + (WATCHDOG_PERIOD - 1).bit_length())
        overdue = (config.reset_limit != 0) & (lasted[-len(config.reset_limit):] >= config.reset_limit)
        forced = Signal(error_report(self._geometry))
        refused = Signal(error_report(self._geometry))
        self._reset_done = Signal()
        self._reports += [forced, refused]
        moves = Cat(status[name] for name in RESET_ENDS).any() | self.refused.any()
        if self._geometry.dma.queue_commands:
            moves |= self._queue.under_way | self._owed_lines.owed
        sweeps = status.tracker_busy | status.dma_table_busy | status.window_open
        m.d.sync += [
            moving.eq(moves),
            self._clear.eq(0),
            self._reset_done.eq(self._stopped & cleared & ~self._clear & ~sweeps),
        ]
        with m.If(bus.soft_reset):
            m.d.sync += [self._stopped.eq(1), cleared.eq(0), quiet.eq(0), lasted.eq(0)]
        with m.Elif(self._stopped & ~cleared):
            m.d.sync += [quiet.eq(Mux(moving, 0, quiet + 1)), lasted.eq(lasted + 1)]
            # Never sooner than what is issued or read in this cycle is seen to move.
            with m.If(~moving & (quiet >= (config.quiet_cycles | 15))):
                m.d.sync += [cleared.eq(1), self._clear.eq(1)]
            with m.Elif(overdue):
                m.d.comb += self._forced.eq(1)
                m.d.sync += [cleared.eq(1), self._clear.eq(1)]
        with m.Elif(self._restart):
            m.d.sync += self._stopped.eq(0)
        m.d.comb += [
            self._restart.eq(bus.restart & ~bus.soft_reset & (self._reset_done | ~self._stopped)
                             & ~Cat(status[name] for name in KERNEL_INSIDE).any()
                             & follows(config.epoch, self._window.epoch)),
            forced.code.eq(ErrorCode.RESET_FORCED),
            refused.code.eq(ErrorCode.RESTART_REFUSED),
        ]
        m.d.sync += [forced.valid.eq(self._forced), refused.valid.eq(bus.restart & ~self._restart)]

    def _watchdog(self, m):
        """Tell the watchdog what moves and what waits.

        Whatever waits inside waits for something outside in the end: for DRAM, the link, a peer, compute units, or who
        takes events. So only what crosses the border moves, and a line outside of its region, which goes nowhere. Other
        kernels' traffic neither moves nor waits here, nor do packets that are refused: they go on beside any hang.
        A head that is news counts a cycle late: what is known of its peer has been compared with it by then.
        """
        bus, window, status = self._bus, self._window, self._bus.status
        m.submodules.watchdog = dog = WatchDog(self._geometry)
        crossing = [*self.packets, *self.outbound, self.events, self.dispatch, self.heads]
        if self._geometry.dma.ready_groups:
            crossing.append(self.asks)
        m.d.comb += [dog.limit.eq(bus.levels.watchdog_limit), dog.clear.eq(bus.clear_error), bus.waited.eq(dog.waited)]
        heard = Signal(name="heard_news")
        m.d.sync += heard.eq(self._exchange.news)
        with m.If(dog.listens):
            m.d.comb += dog.moves.eq(Cat(
                *(port.valid & port.ready for port in crossing), *(write.valid for write in self.retirement),
                *(port.valid & port.ready & is_watched(port.payload.request, self._geometry) for port in self.dram),
                *(engine.error.valid for engine in self._generators), self.grant.valid & self.start,
                *([self._queue.done] if self._geometry.dma.queue_commands else []),
                heard, bus.soft_reset, self._restart).any())
        engines_busy = Cat(engine.busy for engine in self._generators).any()
        with m.If(dog.looks):
            m.d.comb += [
                dog.waits.tiles.eq(status.tracker_occupied),
                dog.waits.updates.eq(status.tracker_busy),
                dog.waits.triggers.eq(status.merge_busy),
                dog.waits.events.eq(status.events_busy),
                dog.waits.commands.eq(status.dma_table_busy),
                dog.waits.engines.eq(engines_busy),
                dog.waits.room.eq(engines_busy & ~self._credits.allow),
                dog.waits.lines.eq(self._lines.busy),
                dog.waits.guard.eq(Cat(channel.guard_stall for channel in self._memory).any()),
                dog.waits.channels.eq(status.channels_hold),
                dog.waits.dram.eq(Cat(channel.holds & port.valid
                                      for channel, port in zip(self._memory, self.dram)).any()),
                dog.waits.data.eq(status.reads_outstanding),
                dog.waits.link.eq(status.egress_busy | self.heads.valid),
                dog.waits.window.eq(window.waits_here),
                dog.waits.peer.eq(window.waits_there),
                dog.waits.start.eq(self.grant.valid),
                dog.waits.workgroups.eq(status.window_open),
            ]
            if self._geometry.dma.queue_commands:
                m.d.comb += [dog.waits[name].eq(self._queue.waits[name]) for name in ("fetch", "poll", "signal")]
                with m.If(self._owed_lines.late):
                    m.d.comb += dog.waits.fetch.eq(1)
        self._reports.append(dog.error)

    def _status(self, m):
        """Connect error reports and counters to the bus."""
        bus = self._bus
        stalled = Signal(len(self._memory))  # what channels know late in a cycle is counted in the next one
        merged = Signal(len(self._memory))
        crowded = Signal(len(self._banks))
        m.d.sync += [
            crowded.eq(Cat(bank.refused_full for bank in self._banks)),
            stalled.eq(Cat(channel.guard_stall for channel in self._memory)),
            merged.eq(Cat(channel.merged for channel in self._memory)),
        ]
        m.d.comb += [there.eq(here) for there, here in zip(bus.reports, self._reports, strict=True)]
        self._counts |= {
            "guard_stall": ones(stalled),
            "coalesced": ones(merged),
            "set_full": ones(crowded),
            "errors": ones(report.valid for report in self._reports),
        }
        for name, amount in self._counts.items():
            m.submodules[f"count_{name}"] = counter = EventCounter(amount_bits=len(amount))
            m.d.comb += [counter.amount.eq(amount), counter.clear.eq(bus.clear_counters),
                         bus.counters[name].eq(counter.total)]
        m.d.comb += [
            bus.counters.ready_high_water.eq(self._table.ready_high_water),
            bus.chosen_threshold.eq(self._monitor.threshold),
            bus.monitor_mean.eq(self._monitor.mean),
        ]
        status = bus.status
        m.d.comb += [
            status.tracker_busy.eq(Cat(bank.busy for bank in self._banks).any() | self._network.busy),
            status.tracker_occupied.eq(Cat(bank.occupied != 0 for bank in self._banks).any()),
            status.dma_table_busy.eq(self._table.busy),
            status.engines_busy.eq(Cat(engine.busy for engine in self._generators).any() | self._lines.busy),
            status.egress_busy.eq(Cat(lane.busy for lane in self._lanes).any()),
            status.channels_busy.eq(Cat(channel.busy for channel in self._memory).any()),
            status.channels_hold.eq(Cat(channel.holds for channel in self._memory).any()),
            status.dispatch_blocked.eq(self._window.blocked),
            status.drain.eq(self._drain),
            status.monitor_done.eq(self._monitor.done),
            status.merge_busy.eq(self._merge.merged.valid),
            status.events_busy.eq(self.events.valid),
            status.window_open.eq(self._window.busy),
            status.reads_outstanding.eq(self._credits.waits.any()),
            status.resetting.eq(self._stopped & ~self._reset_done),
            status.reset_done.eq(self._reset_done),
            status.heads_busy.eq(self._exchange.busy),
        ]
        if self._geometry.dma.queue_commands:
            m.d.comb += [status.queue_busy.eq(self._queue.busy), status.queue_halted.eq(self._queue.halted),
                         status.copy_failed.eq(self._queue.spoiled), status.lines_owed.eq(self._owed_lines.owed)]
        apb = self.apb
        m.d.comb += [
            self.irq.eq(bus.error),
            bus.paddr.eq(apb.paddr), bus.psel.eq(apb.psel), bus.penable.eq(apb.penable), bus.pwrite.eq(apb.pwrite),
            bus.pwdata.eq(apb.pwdata),
            apb.prdata.eq(bus.prdata), apb.pready.eq(bus.pready), apb.pslverr.eq(bus.pslverr),
        ]
