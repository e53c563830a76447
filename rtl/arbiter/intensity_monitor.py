"""Chooses MCA's occupancy threshold while the producer kernel runs alone."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.arbiter.policy import THRESHOLD_BITS, THRESHOLD_NONE
from t3sim.rtl.geometry import Geometry

BREAKPOINT_BITS = 8  #: quarters of a queue entry
LEAST_BITS, LEAST_UNIT = 8, 64  #: least samples of a phase
#: Entries of 64 bytes, by rising memory intensity. The T3 paper has 30, 10 and 5 (section 6.1.3), for requests of 32
#: bytes (GPGPU-Sim's sectors).
THRESHOLDS = (THRESHOLD_NONE, 15, 5, 3)


class IntensityMonitor(wiring.Component):
    """Picks the threshold from the mean DRAM queue occupancy of the isolated phase (T3 paper, section 4.5).

    1. The phase begins at `restart`. It ends with the first communication request, but not before `least` samples
       unless the producer has ended, so an early neighbour cannot leave the choice to a few samples.
    2. Each cycle with the producer active takes one sample, from the channels in turn, up to 2**sample_bits samples.
    3. The mean is floor(4 * sum / samples) in quarters of an entry, or 0 without samples. Its exact division takes one
       cycle per quotient bit, then `done` rises.
    4. The threshold is none if mean < breakpoints[0], 15 if < [1], 5 if < [2], else 3. Before `done` there is no
       threshold.

    The breakpoints must rise.

    Members
    -------
    restart : In(1)
        Pulse: a new kernel; sample from the next cycle on.
    communication_seen : In(1)
        A communication request waits in any channel. The cycle that ends the phase is no sample.
    least : In(8)
        Units of 64 samples.
    occupancy : In(occupancy_bits).array(channels)
        Entries.
    breakpoints : In(8).array(3)
        Quarters of an entry.
    threshold : Out(7)
        Entries, 127: none. Function of registers and `breakpoints`.
    mean : Out(occupancy_bits + 2)
        Quarters of an entry; 0 before `done`.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        channel = geometry.channel
        super().__init__({
            "restart": In(1),
            "producer_active": In(1),
            "communication_seen": In(1),
            "least": In(LEAST_BITS),
            "occupancy": In(channel.occupancy_bits).array(channel.channels),
            "breakpoints": In(BREAKPOINT_BITS).array(3),
            "threshold": Out(THRESHOLD_BITS),
            "mean": Out(channel.occupancy_bits + 2),
            "done": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        channel = self._geometry.channel
        mean_bits = channel.occupancy_bits + 2

        phase_runs = Signal()
        division_runs = Signal()
        turn = Signal(range(channel.channels))
        sample = Signal(channel.occupancy_bits)
        communication_before = Signal()  # in this phase
        phase_ends = Signal()
        last_sample = Signal(channel.occupancy_bits)  # not yet added
        samples = Signal(channel.sample_bits + 1)
        # The sum; during the division the remainder above the quotient.
        work = Signal(len(samples) + mean_bits)
        work_shifted = Signal.like(work)
        difference = Signal(len(samples) + 1)
        divisor_fits = Signal()
        quotient_bits_left = Signal(range(mean_bits))
        m.d.comb += [
            sample.eq(Array(self.occupancy[i] for i in range(channel.channels))[turn]),
            work_shifted.eq(work << 1),
            difference.eq(work_shifted[mean_bits:] - samples),
            divisor_fits.eq(~difference[-1]),
            self.mean.eq(Mux(self.done, work[:mean_bits], 0)),
        ]

        total = Signal.like(work)
        enough_samples = samples[-1] | (samples >> (LEAST_UNIT.bit_length() - 1) >= self.least)
        producer_over = (samples != 0) & ~self.producer_active
        m.d.comb += [
            total.eq(work + last_sample),
            phase_ends.eq((communication_before | self.communication_seen) & (enough_samples | producer_over)),
        ]
        with m.If(phase_runs):
            m.d.sync += [work.eq(total), last_sample.eq(0),
                         communication_before.eq(communication_before | self.communication_seen)]
            with m.If(phase_ends):
                # The quotient has mean_bits: 4 * sum < samples << mean_bits.
                m.d.sync += [
                    phase_runs.eq(0),
                    division_runs.eq(samples != 0),
                    self.done.eq(samples == 0),
                    work.eq(total << 2),
                    quotient_bits_left.eq(mean_bits - 1),
                ]
            with m.Elif(self.producer_active & ~samples[-1]):
                m.d.sync += [
                    last_sample.eq(sample),
                    samples.eq(samples + 1),
                    turn.eq(Mux(turn == channel.channels - 1, 0, turn + 1)),
                ]
        with m.If(division_runs):
            m.d.sync += [
                work.eq(Cat(divisor_fits, work_shifted[1:mean_bits],
                            Mux(divisor_fits, difference[:-1], work_shifted[mean_bits:]))),
                quotient_bits_left.eq(quotient_bits_left - 1),
            ]
            with m.If(quotient_bits_left == 0):
                m.d.sync += [division_runs.eq(0), self.done.eq(1)]
        with m.If(self.restart):
            m.d.sync += [
                phase_runs.eq(1),
                communication_before.eq(0),
                division_runs.eq(0),
                self.done.eq(0),
                work.eq(0),
                last_sample.eq(0),
                samples.eq(0),
                turn.eq(0),
            ]

        m.d.comb += self.threshold.eq(THRESHOLDS[-1])
        for breakpoint, threshold in reversed(list(zip(self.breakpoints, THRESHOLDS))):
            with m.If(self.mean < breakpoint):
                m.d.comb += self.threshold.eq(threshold)
        with m.If(~self.done):
            m.d.comb += self.threshold.eq(THRESHOLD_NONE)
        return m
