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
from t3sim.rtl.control.reset_sequence import ResetSequence
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
from t3sim.rtl.registers import ARRIVAL_RANGES, KERNEL_INSIDE, RESET_ENDS, register_map
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

    Every output is a function of registers only, so no neighbour needs to react within a cycle.

    Members
    -------
    compute, inbound : In(stream(request)).array(channels)
        This GPU's accesses; packets from the link for this GPU's memory. A compute write to a mapped region that has no
        bytes or crosses a line is accepted, reported (STORE_REFUSED) and dropped.
    occupancy : In(occupancy_bits).array(channels)
        DRAM queue entries in use at the start of the cycle.
    refused : Out(channels)
        Channels whose arrivals were accepted and dropped in the cycle before.
    retirement : In(retirement).array(channels)
        Tracked writes that DRAM performs.
    outbound : In(stream(request)).array(egress_lanes)
        Data of DMA reads, with the read's source, and the compute units' stores to remote-mapped tiles (source LOCAL).
    packets : Out(stream(packet)).array(egress_lanes)
        Towards the link.
    dispatch : In(stream(dispatch)), grant : Out({valid, id}), start : In(1), blocked : Out(1)
        Requests for workgroups, in order of dispatch, and their admission: see DispatchWindow.
    heads : Out(stream(head_packet)), heads_in : In(stream(head_arrival))
        Heads of dispatch windows on the links: this GPU's, and its peers'.
    head : Out(wg_bits + 1), peer_heads : Out(wg_bits + 1).array(peers)
        This GPU's head and its peers' heads as known here, for observers.
    events : Out(stream(trigger))
        Complete tiles of event regions.
    producer_active : In(1)
        The producer kernel runs.
    irq : Out(1)
        Level: an error is latched, until CONTROL.clear_error.
    queue_reads : Out(stream(address)), queue_lines : In(stream(queue_command)), queue_writes : Out(stream(word_write))
        Only with a command queue: its memory accesses. A word for another GPU must follow the packets that have left;
        it arrives at that GPU's `inbound` and is checked there: a STORE of 4 bytes, source DMA, region 0.
    sums : Out(memory_sum()).array(regions)
        Only with wide near-memory ALUs: the sum of each region, see WideAlu.
    asks : In(stream(ready_ask))
        Only with a ready table: see ReadyTable.
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

    def elaborate(self, platform) -> Module:
        m = Module()
        g = self._geometry
        channel_groups, origins = groups(g), range(read_origins(g))
        has_queue, protected = g.dma.queue_commands != 0, g.tracker.protection != "none"
        m.submodules.reset_sequence = reset = ResetSequence(g)

        def add(name, block):
            m.submodules[name] = block
            return block

        def add_cleared(name, block):
            """Add a block that a soft reset clears."""
            m.submodules[name] = SoftReset(block, reset.clear)
            return block

        # Blocks. A soft reset spares those with obligations to memory, to the link or to a peer.
        monitor = add_cleared("monitor", IntensityMonitor(g))
        ring_monitor = add_cleared("ring_monitor", RingMonitor(g))
        channels = [add(f"channel_{number}", MemoryChannel(g)) for number in range(g.channel.channels)]
        network = add_cleared("network", UpdateNetwork(g))
        banks = [add_cleared(f"tracker_{number}", TrackerBank(g)) for number in range(g.tracker.banks)]
        merge = add_cleared("merge", TriggerMerge(g))
        window = add_cleared("window", DispatchWindow(g))
        exchange = add("exchange", HeadExchange(g))
        table = add_cleared("table", DmaTable(g))
        events = add_cleared("event_queue", TwoEntryQueue(trigger(g)))
        engines = [add_cleared(f"engine_{number}", AddressGenerator(g)) for number in range(g.dma.engines)]
        router = add("line_router", LineRouter(g))
        credits = add("credits", ReadCredits(g))
        lanes = [add(f"egress_{number}", Egress(g)) for number in range(g.dma.egress_lanes)]
        ingresses = [add(f"ingress_{index}", Ingress(g)) for index in range(len(channel_groups))]
        watchdog = add("watchdog", WatchDog(g))
        if has_queue:
            queue = add_cleared("queue", CommandQueue(g))
            owed_lines = add("owed_lines", OwedLines(g))

        # Errors, in the order of their priority within a cycle.
        store_reports = [Signal(error_report(g), name=f"store_report_{index}") for index in range(len(channel_groups))]
        region_report = Signal(error_report(g))
        stray_reports = [Signal(error_report(g), name=f"stray_report_{index}") for index in range(len(lanes))]
        doorbell_report = Signal(error_report(g))
        reports = [*store_reports, *(bank.error for bank in banks), window.error, region_report, exchange.error,
                   *(engine.error for engine in engines),
                   *([queue.error, doorbell_report, owed_lines.error] if has_queue else []),
                   *(report for lane, stray in zip(lanes, stray_reports) for report in (lane.error, stray)),
                   *(ingress.error for ingress in ingresses), *reset.errors, watchdog.error]

        # Configuration.
        bus = add("bus", ConfigBus(g, reporters=len(reports)))
        config, status, apb = bus.levels, bus.status, self.apb
        tracked = [Signal(name=f"tracked_{region}") for region in range(g.dma.regions)]
        m.d.comb += [
            bus.paddr.eq(apb.paddr), bus.psel.eq(apb.psel), bus.penable.eq(apb.penable), bus.pwrite.eq(apb.pwrite),
            bus.pwdata.eq(apb.pwdata),
            apb.prdata.eq(bus.prdata), apb.pready.eq(bus.pready), apb.pslverr.eq(bus.pslverr),
            self.irq.eq(bus.error),
            *(signal.eq(is_tracked(entry)) for signal, entry in zip(tracked, bus.region)),
            *(reported.eq(report) for reported, report in zip(bus.reports, reports)),
        ]
        for block in (table, *engines, *lanes):
            for name in mapping_tables(g):
                if name in block.signature.members:
                    m.d.comb += [entry.eq(row) for entry, row in zip(getattr(block, name), getattr(bus, name))]
        if g.channel.wide_sums:
            for memory_sum_, entry in zip(self.sums, bus.region):
                m.d.comb += [memory_sum_[name].eq(entry[name]) for name in memory_sum().members]

        # Memory channels, and the monitors for their arbiters.
        threshold = Signal(7)
        drain = Signal()
        m.d.sync += [
            # 0 counts as 1: an empty DRAM queue admits communication, because the producer may wait for it.
            threshold.eq(Mux(config.auto_threshold, monitor.threshold, config.threshold | (config.threshold == 0))),
            drain.eq(~self.producer_active | reset.stopped),
        ]
        for c, channel in enumerate(channels):
            wiring.connect(m, channel.dram, wiring.flipped(self.dram[c]))
            m.d.comb += [
                channel.occupancy.eq(self.occupancy[c]),
                channel.retirement.eq(self.retirement[c]),
                channel.policy.eq(config.policy),
                channel.threshold.eq(threshold),
                channel.starvation_limit.eq(config.starvation_limit),
                channel.drain.eq(drain),
                channel.ring_late.eq(ring_monitor.late),
                channel.forget.eq(reset.stopped),
                monitor.occupancy[c].eq(self.occupancy[c]),
            ]
        m.d.comb += [
            monitor.restart.eq(reset.begins),
            monitor.producer_active.eq(self.producer_active),
            monitor.communication_seen.eq(Cat(channel.communication_waiting for channel in channels).any()),
            monitor.least.eq(config.least_samples),
            *(monitor.breakpoints[i].eq(config[f"breakpoint{i}"]) for i in range(3)),
            ring_monitor.stage.eq(config.stage),
            ring_monitor.restart.eq(reset.begins),
            ring_monitor.pending.eq(table.ready_level != 0),
            ring_monitor.started.eq(self.grant.valid & self.start),
        ]

        # This GPU's accesses, except writes that cross a line: the next line could be another channel's, whose reads
        # would not wait for them.
        for report, group in zip(store_reports, channel_groups):
            refused_stores = Signal(len(group))
            m.d.comb += report.code.eq(ErrorCode.STORE_REFUSED)
            m.d.sync += report.valid.eq(refused_stores.any())
            for place, c in reversed(list(enumerate(group))):
                access, store = self.compute[c], self.compute[c].payload
                store_lawful = Signal(name=f"store_lawful_{c}")
                m.d.comb += [
                    store_lawful.eq(~counts_for_a_tile(store) | in_one_line(store, g)),
                    channels[c].compute.payload.eq(store),
                    channels[c].compute.valid.eq(access.valid & store_lawful),
                    access.ready.eq(channels[c].compute.ready),
                    refused_stores[place].eq(access.valid & access.ready & ~store_lawful),
                ]
                with m.If(refused_stores[place]):
                    m.d.sync += [report.details[name].eq(store[name]) for name, _ in report.details.shape()]

        # Arrivals from peers.
        open_regions = [Signal(g.dma.regions, name=f"open_regions_{i}") for i in range(ARRIVAL_RANGES)]
        m.d.sync += [regions.eq(Cat(tracked) & Cat(entry.arrivals[i] for entry in bus.region))
                     for i, regions in enumerate(open_regions)]
        for ingress, group in zip(ingresses, channel_groups):
            for c, arriving, accepted in zip(group, ingress.arriving, ingress.accepted):
                wiring.connect(m, wiring.flipped(self.inbound[c]), arriving)
                wiring.connect(m, accepted, channels[c].inbound)
            for i, regions in enumerate(open_regions):
                m.d.comb += [ingress.open[i].eq(regions), *(
                    getattr(ingress, name)[i].eq(Cat(config[f"arrivals{i}_{name}_{half}"] for half in ("lo", "hi")))
                    for name in ("base", "last"))]
            m.d.comb += [
                ingress.head.eq(window.head),
                ingress.limit.eq(window.limit),
                ingress.tiles.eq(config.tiles),
                ingress.any_tile.eq(reset.stopped),
            ]
        m.d.comb += self.refused.eq(Cat(ingress.refused for ingress in ingresses))

        # The Tracker: updates from the channels to its banks, triggers into one stream. Admissions share the first
        # channel's input.
        sources = [channels[0].updates, window.admissions]
        goes = join(m, [source.valid for source in sources], [source.payload for source in sources],
                    network.updates[0])
        m.d.comb += [source.ready.eq(go) for source, go in zip(sources, goes)]
        for channel, port in zip(channels[1:], list(network.updates)[1:]):
            wiring.connect(m, channel.updates, port)
        for b, bank in enumerate(banks):
            wiring.connect(m, network.banks[b], bank.updates)
            wiring.connect(m, bank.triggers, merge.triggers[b])
            if protected:
                m.d.comb += bus.faults[b].eq(bank.fault)
            for region, entry in enumerate(bus.region):
                m.d.comb += [
                    bank.thresholds[region].eq(entry.threshold),
                    bank.tracked[region].eq(tracked[region]),
                    bank.families[region].eq(entry.family),
                ]

        # A complete tile frees its window place and is taken by the DMA table, the event stream, or both in the same
        # cycle. It is dropped if its workgroup does not have it.
        merged = merge.merged
        entry = Array(bus.region)[merged.payload.region]
        to_table = Signal()
        to_events = Signal()
        tile_known = Signal()
        tile_leaves = Signal()
        m.d.comb += [
            to_table.eq(entry.send_dma),
            to_events.eq(entry.event),
            tile_known.eq(merged.valid & ~window.foreign),
            tile_leaves.eq(merged.valid & merged.ready),
            merged.ready.eq((~to_table | table.triggers.ready) & (~to_events | events.input.ready)),
            table.triggers.valid.eq(tile_known & to_table & (~to_events | events.input.ready)),
            table.triggers.payload.eq(merged.payload),
            table.clear_high_water.eq(bus.clear_counters),
            events.input.valid.eq(tile_known & to_events & (~to_table | table.triggers.ready)),
            events.input.payload.eq(merged.payload),
            window.upcoming.eq(merge.following),
            window.completion.valid.eq(tile_leaves),
            *(window.completion[name].eq(merged.payload[name]) for name, _ in merged.payload.shape()),
            region_report.code.eq(ErrorCode.REGION_UNCONFIGURED),
        ]
        m.d.sync += [
            # The region was tracked when the tile was opened, but no longer is.
            region_report.valid.eq(tile_leaves & ~to_table & ~to_events),
            region_report.details.eq(merged.payload),
        ]
        wiring.connect(m, events.output, wiring.flipped(self.events))
        if g.dma.ready_groups:
            ready = add_cleared("ready", ReadyTable(g))
            wiring.connect(m, wiring.flipped(self.asks), ready.asks)
            m.d.comb += [
                ready.shift.eq(config.ready_shift),
                ready.restart.eq(reset.begins),
                ready.completion.valid.eq(tile_leaves & tile_known & to_events),
                ready.completion.wg.eq(merged.payload.wg),
            ]

        # The dispatch window, and the packets of its heads.
        wiring.connect(m, exchange.leaving, wiring.flipped(self.heads))
        wiring.connect(m, wiring.flipped(self.heads_in), exchange.arriving)
        m.d.comb += [
            window.dispatch.payload.eq(self.dispatch.payload),
            window.dispatch.valid.eq(self.dispatch.valid & ~reset.stopped),
            self.dispatch.ready.eq(window.dispatch.ready & ~reset.stopped),
            self.grant.valid.eq(window.grant.valid & ~reset.stopped),
            self.grant.id.eq(window.grant.id),
            window.start.eq(self.start & ~reset.stopped),
            self.blocked.eq(window.blocked),
            window.window.eq(config.window),
            window.restart.eq(reset.begins),
            window.next_epoch.eq(config.epoch),
            # Peers hear of a soft reset at its beginning, so that it ends after they have heard of it.
            exchange.epoch.eq(Mux(reset.stopped, 0, window.epoch)),
            exchange.head.eq(Mux(exchange.epoch == 0, 0, window.head)),
            exchange.number.eq(config.device_number),
            self.head.eq(window.head),
        ]
        for peer in range(g.dma.peers):
            m.d.comb += [
                exchange.heard[peer].eq(config[f"peer{peer}_heard"]),
                exchange.told[peer].device.eq(config[f"peer{peer}_told"]),
                exchange.told[peer].enable.eq(config[f"peer{peer}_telling"]),
                window.peer_heads[peer].eq(exchange.peer_heads[peer]),
                # A peer in no kernel is never in the same kernel.
                window.peer_epochs[peer].eq(Mux(exchange.peer_epochs[peer] == 0, ~window.epoch,
                                                exchange.peer_epochs[peer])),
                self.peer_heads[peer].eq(exchange.peer_heads[peer]),
            ]

        # DMA commands of complete blocks and of the queue in memory.
        commands = table.commands
        if has_queue:
            commands = stream.Signature(dma_command(g)).create()
            fronts = [table.commands, queue.copies]
            front_commands = [Signal(dma_command(g), name=name) for name in ("triggered", "copy")]
            goes = join(m, [front.valid for front in fronts], front_commands, commands)
            wiring.connect(m, queue.reads, owed_lines.asked)
            wiring.connect(m, owed_lines.reads, wiring.flipped(self.queue_reads))
            wiring.connect(m, wiring.flipped(self.queue_lines), owed_lines.lines)
            wiring.connect(m, owed_lines.wanted, queue.lines)
            wiring.connect(m, queue.writes, wiring.flipped(self.queue_writes))
            m.d.comb += [
                *(command[name].eq(front.payload[name]) for command, front in zip(front_commands, fronts)
                  for name, _ in trigger(g)),
                front_commands[1].copy.eq(1),
                *(front.ready.eq(go) for front, go in zip(fronts, goes)),
                owed_lines.forget.eq(reset.clear),
                queue.base.eq(Cat(config.queue_base_lo, config.queue_base_hi)),
                *(queue.words[name].eq(Cat(config[f"queue_words_{name}_lo"], config[f"queue_words_{name}_hi"]))
                  for name in ("base", "limit")),
                queue.doorbell.valid.eq(bus.rung & ~reset.stopped),
                queue.doorbell.place.eq(config.doorbell),
                queue.stop.eq(reset.stopped),
                queue.resume.eq(bus.resume_queue),
                queue.skip.eq(bus.skip_command),
                queue.settled.eq(~(Cat(engine.copies for engine in engines).any() | credits.waits[1])),
                bus.queue_taken.eq(queue.taken),
                doorbell_report.code.eq(ErrorCode.DOORBELL_REFUSED),
            ]
            m.d.sync += doorbell_report.valid.eq(bus.rung & reset.stopped)

        # DMA engines.
        first_engine = Signal(range(max(2, len(engines))))  # in turn
        free_engines = Cat(engine.command.ready for engine in engines)
        chosen_engine = Signal(len(engines))  # one-hot
        for start in range(len(engines)):
            with m.If(first_engine == start):
                for offset in reversed(range(len(engines))):
                    number = (start + offset) % len(engines)
                    with m.If(free_engines[number]):
                        m.d.comb += chosen_engine.eq(1 << number)
        m.d.comb += commands.ready.eq(free_engines.any())
        with m.If(commands.valid & commands.ready):
            m.d.sync += first_engine.eq(Mux(first_engine == len(engines) - 1, 0, first_engine + 1))
        for number, engine in enumerate(engines):
            wiring.connect(m, engine.lines, router.lines[number])
            m.d.comb += [
                engine.command.valid.eq(commands.valid & chosen_engine[number]),
                engine.command.payload.eq(commands.payload),
                engine.allow.eq(credits.allow),
            ]
        for port, channel in zip(router.channels, channels):
            wiring.connect(m, port, channel.dma)

        # Lines to the link.
        stray_reads = []
        for number, (lane, line, report) in enumerate(zip(lanes, self.outbound, stray_reports)):
            reads = Signal(len(origins), name=f"reads_{number}")
            m.d.comb += [
                lane.forget.eq(reset.stopped),
                reads.eq(Mux(line.valid, read_for(line.payload, g), 0)),
                lane.line.payload.eq(line.payload),
                lane.line.valid.eq(line.valid & ~credits.unasked[number]),
                line.ready.eq(lane.line.ready),
                report.valid.eq(credits.unasked[number]),
                report.code.eq(ErrorCode.DATA_UNEXPECTED),
                *(report.details[name].eq(line.payload[name]) for name, _ in report.details.shape()),
                *(credits.came[origin][number].eq(reads[origin] & line.ready) for origin in origins),
                *(credits.repeated[origin][number].eq(lane.repeated[origin]) for origin in origins if g.dma.copies > 1),
            ]
            stray_reads.append(Mux(report.valid, reads, 0))
            wiring.connect(m, lane.packet, wiring.flipped(self.packets[number]))
        m.d.comb += [
            *(credits.issued[origin].eq(ones(engine.issued[origin] for engine in engines)) for origin in origins),
            *(credits.gone[origin].eq(ones(bit for lane in lanes for bit in (lane.left[origin], lane.refused[origin])))
              for origin in origins),
            credits.hold.eq(reset.stopped),
            credits.forget.eq(reset.forced),
        ]
        if has_queue:
            failures = [engine.failed for engine in engines] + [lane.refused for lane in lanes] + stray_reads
            m.d.comb += queue.failed.eq(~reset.stopped & Cat(whose[1] for whose in failures).any())

        # Soft reset and restart.
        reset_waits = Cat(status[name] for name in RESET_ENDS).any() | self.refused.any()
        m.d.comb += [
            reset.soft_reset.eq(bus.soft_reset),
            reset.restart.eq(bus.restart),
            reset.quiet_cycles.eq(config.quiet_cycles),
            reset.reset_limit.eq(config.reset_limit),
            reset.moves.eq(reset_waits | exchange.busy | (queue.under_way | owed_lines.owed if has_queue else 0)),
            reset.sweeps.eq(status.tracker_busy | status.dma_table_busy | status.window_open),
            reset.kernel_inside.eq(Cat(status[name] for name in KERNEL_INSIDE).any()),
            reset.old_epoch.eq(window.epoch),
            reset.new_epoch.eq(config.epoch),
        ]
        # Accesses that arrive with a restart are of the kernel before, but STATUS shows them a cycle later.
        with m.If(bus.restart):
            with m.If(Cat(*(port.valid & counts_for_a_tile(port.payload) for port in (*self.compute, *self.inbound)),
                          *(line.valid for line in self.outbound), window.admissions.valid).any()):
                m.d.comb += reset.kernel_inside.eq(1)

        # Status.
        engines_busy = Cat(engine.busy for engine in engines).any()
        m.d.comb += [
            status.tracker_busy.eq(Cat(bank.busy for bank in banks).any() | network.busy),
            status.tracker_occupied.eq(Cat(bank.occupied != 0 for bank in banks).any()),
            status.dma_table_busy.eq(table.busy),
            status.engines_busy.eq(engines_busy | router.busy),
            status.egress_busy.eq(Cat(lane.busy for lane in lanes).any()),
            status.channels_busy.eq(Cat(channel.busy for channel in channels).any()),
            status.channels_hold.eq(Cat(channel.holds for channel in channels).any()),
            status.dispatch_blocked.eq(window.blocked),
            status.drain.eq(drain),
            status.monitor_done.eq(monitor.done),
            status.merge_busy.eq(merged.valid),
            status.events_busy.eq(self.events.valid),
            status.window_open.eq(window.busy),
            status.reads_outstanding.eq(credits.waits.any()),
            status.resetting.eq(reset.stopped & ~reset.done),
            status.reset_done.eq(reset.done),
            status.heads_busy.eq(exchange.busy),
            bus.chosen_threshold.eq(monitor.threshold),
            bus.monitor_mean.eq(monitor.mean),
        ]
        if has_queue:
            m.d.comb += [status.queue_busy.eq(queue.busy), status.queue_halted.eq(queue.halted),
                         status.copy_failed.eq(queue.spoiled), status.lines_owed.eq(owed_lines.owed)]

        # The watchdog. Every internal stall is ultimately caused by an external interface: DRAM, the link, a peer,
        # compute units, or the consumer of events. So only transfers at the border count as movement, and lines that an
        # engine refuses. Other kernels' traffic and refused packets do not count, because they continue during any
        # hang. A new head counts a cycle late, when its peer's known head has been compared.
        crossing = [*self.packets, *self.outbound, self.events, self.dispatch, self.heads]
        if g.dma.ready_groups:
            crossing.append(self.asks)
        head_news = Signal()
        m.d.sync += head_news.eq(exchange.news)
        m.d.comb += [watchdog.limit.eq(config.watchdog_limit), watchdog.clear.eq(bus.clear_error),
                     bus.waited.eq(watchdog.waited)]
        with m.If(watchdog.listens):
            m.d.comb += watchdog.moves.eq(Cat(
                *(port.valid & port.ready for port in crossing), *(write.valid for write in self.retirement),
                *(port.valid & port.ready & is_watched(port.payload.request, g) for port in self.dram),
                *(engine.error.valid for engine in engines), self.grant.valid & self.start,
                *([queue.done] if has_queue else []), head_news, bus.soft_reset, reset.begins).any())
        waits = {
            "tiles": status.tracker_occupied, "updates": status.tracker_busy, "triggers": status.merge_busy,
            "events": status.events_busy, "commands": status.dma_table_busy, "engines": engines_busy,
            "room": engines_busy & ~credits.allow, "lines": router.busy,
            "guard": Cat(channel.guard_stall for channel in channels).any(), "channels": status.channels_hold,
            "dram": Cat(channel.holds & port.valid for channel, port in zip(channels, self.dram)).any(),
            "data": status.reads_outstanding, "link": status.egress_busy | self.heads.valid,
            "window": window.waits_here, "peer": window.waits_there, "start": self.grant.valid,
            "workgroups": status.window_open}
        if has_queue:
            waits |= {"fetch": queue.waits.fetch | owed_lines.late, "poll": queue.waits.poll,
                      "signal": queue.waits.signal}
        with m.If(watchdog.looks):
            m.d.comb += [watchdog.waits[name].eq(waiting) for name, waiting in waits.items()]

        # Counters. Late signals count in the next cycle.
        updates_taken = Signal(len(banks))
        full_sets = Signal(len(banks))
        guard_stalls = Signal(len(channels))
        merged_stores = Signal(len(channels))
        m.d.sync += [
            updates_taken.eq(Cat(port.valid & port.ready for port in network.banks)),
            full_sets.eq(Cat(bank.refused_full for bank in banks)),
            guard_stalls.eq(Cat(channel.guard_stall for channel in channels)),
            merged_stores.eq(Cat(channel.merged for channel in channels)),
        ]
        counts = {
            "updates": ones(updates_taken), "triggers": tile_leaves, "commands": commands.valid & commands.ready,
            "lines": ones(engine.issued.any() for engine in engines),
            "packets": ones(port.valid & port.ready for port in self.packets), "guard_stall": ones(guard_stalls),
            "coalesced": ones(merged_stores), "set_full": ones(full_sets),
            "errors": ones([*(report.valid for report in reports),
                            *([bus.sum_refused] if g.channel.wide_sums else [])]),
            "arrivals_refused": ones(self.refused)}
        if protected:
            counts |= {
                "tracker_corrected": ones(fault.valid & ~fault.uncorrectable for fault in bus.faults),
                "tracker_uncorrectable": ones(fault.valid & fault.uncorrectable for fault in bus.faults)}
        for name, amount in counts.items():
            m.submodules[f"count_{name}"] = counter = EventCounter(amount_bits=len(amount))
            m.d.comb += [counter.amount.eq(amount), counter.clear.eq(bus.clear_counters),
                         bus.counters[name].eq(counter.total)]
        m.d.comb += bus.counters.ready_high_water.eq(table.ready_high_water)
        return m
