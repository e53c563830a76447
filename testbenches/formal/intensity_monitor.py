"""The intensity monitor's mean is that of the phase's samples, exactly, and its threshold is chosen by it."""

from amaranth.hdl import Array, Mux, Signal

from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

MEAN = "the mean is four times the phase's sum over its samples, rounded down"
CHOSEN = "the threshold is none, 15, 5 or 3 by the breakpoints, and none before a mean is known"
SOON = "the mean is ready as many cycles after the phase as it has bits, and not before"

#: Two channels of few entries: a product of what is counted must be compared.
FEW = Geometry(
    TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=4, wf_bits=1, address_bits=32, count_bits=10),
    ChannelGeometry(channels=2, guard_buckets=1, queue_entries=4, dma_fifo=1, coalescer_timeout_cycles=1,
                    sample_bits=2),
    DmaGeometry(regions=8, engines=1, ready_commands=2, outstanding_lines=2, egress_lanes=1))


def phases(spec: Spec, geometry: Geometry) -> None:
    """Count the phase again, in the words of IntensityMonitor's text. Nothing is assumed."""
    m, monitor, channel = spec.m, spec.design, geometry.channel
    most, bits = 1 << channel.sample_bits, len(monitor.mean)
    watches, seen, ended = Signal(), Signal(), Signal()
    samples, total = Signal(range(most + 1)), Signal(channel.sample_bits + channel.occupancy_bits + 1)
    since = Signal(range(bits + 2))  # the end
    saw = seen | monitor.communication_seen
    enough = (samples >= 64 * monitor.least) | (samples == most)
    ends = watches & saw & (enough | ((samples != 0) & ~monitor.producer_active))
    turn = samples[:(channel.channels - 1).bit_length()]
    with m.If(watches):
        m.d.sync += seen.eq(saw)
        with m.If(ends):
            m.d.sync += [watches.eq(0), ended.eq(1)]
        with m.Elif(monitor.producer_active & (samples != most)):
            m.d.sync += [samples.eq(samples + 1), total.eq(
                total + Array(monitor.occupancy[number] for number in range(channel.channels))[turn])]
    with m.If(ended & (since <= bits)):
        m.d.sync += since.eq(since + 1)
    with m.If(monitor.restart):
        m.d.sync += [watches.eq(1), *(one.eq(0) for one in (seen, ended, samples, total, since))]

    mean, done = monitor.mean, monitor.done
    spec.claim(MEAN, implies(done & (samples != 0), (mean * samples <= 4 * total) & (4 * total < (mean + 1) * samples)))
    spec.claim(MEAN, implies(~done | (samples == 0), mean == 0))
    chosen = Mux(mean < monitor.breakpoints[0], NO_THRESHOLD, Mux(mean < monitor.breakpoints[1], 15, Mux(
        mean < monitor.breakpoints[2], 5, 3)))
    spec.claim(CHOSEN, monitor.threshold == Mux(done, chosen, NO_THRESHOLD))
    spec.claim(SOON, done == (ended & ((samples == 0) | (since >= bits))))

    watching, dividing, work, left = (spec.inside(name) for name in (
        "phase_runs", "division_runs", "work", "quotient_bits_left"))
    spec.invariant((watching == watches) & (dividing == (ended & ~done)) & ~(watches & ended))
    spec.invariant(implies(watches, (spec.inside("communication_before") == seen) & (since == 0)))
    spec.invariant((spec.inside("samples") == samples) & (samples <= most))
    spec.invariant(implies(watches, spec.inside("turn") == turn))
    spec.invariant(total <= samples * ((1 << channel.occupancy_bits) - 1))
    spec.invariant(implies(watches, work + spec.inside("last_sample") == total))
    spec.invariant(implies(~watches & ~ended, (samples == 0) & (total == 0) & (since == 0)))
    # While it divides, `to_come` bits of the dividend wait above the quotient's.
    to_come, found = Signal(range(bits + 1)), Signal(range(bits + 1))
    quotient, waiting = Signal(bits), Signal(bits)
    m.d.comb += [to_come.eq(Mux(dividing, left + 1, 0)), found.eq(bits - to_come), waiting.eq(work[:bits] >> found),
                 quotient.eq(work[:bits] - (waiting << found))]
    remainder = work[bits:]
    spec.invariant(implies(dividing, (samples != 0) & (left < bits) & (since + to_come == bits)))
    spec.invariant(implies(ended & (samples != 0), (remainder < samples) & (
        4 * total == ((quotient * samples + remainder) << to_come) + waiting)))
    spec.invariant(implies(ended & (samples == 0), work == 0))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "arbiter/intensity_monitor.py", old, new)

    return [Property("phases", "intensity_monitor", f"{MEAN}; {CHOSEN}", phases, (
        broken("the last sample is not added", MEAN, "total.eq(work + last_sample)", "total.eq(work)"),
        broken("a restart keeps the turn", MEAN, "                turn.eq(0),\n", ""),
        broken("at a breakpoint the lower threshold is not chosen yet", CHOSEN,
               "self.mean < breakpoint", "self.mean <= breakpoint"),
        broken("the phase ends with the producer, samples or not", SOON,
               "producer_over = (samples != 0) & ~self.producer_active", "producer_over = ~self.producer_active"),
    ), depth=1, geometry=FEW, searches=(Search(FEW, 14),),
        reason="products are slow to solve: two channels of four entries, four samples")]
