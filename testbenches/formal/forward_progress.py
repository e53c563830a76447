"""GPUs in a ring, each with the real `DispatchWindow`: none ever waits for the others for good.

The rest of a GPU is reduced to what the window protocol can see of it. A workgroup is a bit in a few vectors:
*stored* (its compute units have written its tile, here or at the downstream device), *arrived* (the upstream device's
data for it), *fired* (the Tracker's trigger: reported to the window, and queued as a DMA command if the tile goes
on), *sent*. In each cycle, and independently at each device, any workgroup that can make its next step may make it, or
none does; the neighbour's head is seen after any delay. So every order and every delay of DRAM, link, Tracker, DMA
table and engines is covered, also orders that the hardware excludes.

What is left out are the places where the hardware holds things back for want of room. They are three, and each has a
claim that it never happens: a way of the Tracker, the queue of ready commands, the window. With the first two, nothing
that has been dispatched can be held up for ever: every trigger is taken, so every update is, so every
arrival is. So what remains is a state in which everything dispatched has been done and no window opens; the third claim
says that there is none. One tile per workgroup; workgroup w of a device becomes w + shift of the next; the window, the
number of workgroups and the shifts are arbitrary constants; a shift is at least 1 and less than the window.
"""

from types import ModuleType

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring

from rtl.geometry import DmaGeometry, Geometry, TrackerGeometry

from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies

QUIET = 4  #: cycles after which a window has made of its inputs what it can

WAY = "an update finds a way: open tiles of a set are never more than its ways"
ROOM = "a trigger finds room: commands that wait are never more than the window's tiles"
OPENS = "when all that was dispatched is done, a window opens or all have finished"
LEGAL = "the window sees no error"

SMALL = Geometry(TrackerGeometry(sets=4, ways=1, banks=1, wg_bits=4, wf_bits=1, address_bits=32),
                 dma=DmaGeometry(regions=2))


class Ring(wiring.Component):
    """The windows of `devices` GPUs; the specification connects them."""

    def __init__(self, package: ModuleType, geometry: Geometry, devices: int) -> None:
        super().__init__({})
        self.windows = [package.blocks.BLOCKS["dispatch_window"](geometry) for _ in range(devices)]

    def elaborate(self, platform) -> Module:
        m = Module()
        for number, window in enumerate(self.windows):
            m.submodules[f"window_{number}"] = window
        return m


def _ones(bits):
    return sum(bits[i] for i in range(len(bits)))


def progress(spec: Spec, geometry: Geometry) -> None:
    """See the module's text."""
    m, tracker = spec.m, geometry.tracker
    windows = spec.design.windows
    devices, count = len(windows), 1 << tracker.wg_bits
    index = tracker.wg_bits + 1
    workgroups, window = spec.any_constant(index), spec.any_constant(index)
    spec.assume((window >= 1) & (window <= tracker.sets * tracker.ways) & (workgroups <= count))
    staged = spec.any_constant(1)  # the first chunk is tracked here, and sent by DMA; else stored downstream at once
    shifts = [spec.any_constant(index) for _ in windows]
    for shift in shifts:
        spec.assume((shift >= 1) & (shift < window))

    def vector():
        return Signal(count)

    def below(limit):
        """The workgroups below `limit`."""
        bits = vector()
        m.d.comb += bits.eq(Cat(limit > q for q in range(count)))
        return bits

    def some(able):
        """One of the workgroups of `able` or none: as a one-hot vector, and its number."""
        pick, step = spec.any_sequence(tracker.wg_bits), vector()
        m.d.comb += step.eq(Mux(spec.any_sequence(1), able & (1 << pick), 0))
        return step, pick

    stored, arrived, fired, sent = ([vector() for _ in windows] for _ in range(4))
    first, goes_on, tracked, complete, coming = ([vector() for _ in windows] for _ in range(5))
    unsent, unstored, quiet_here = [vector() for _ in windows], [vector() for _ in windows], []
    dispatched = [Signal(index) for _ in windows]
    for d, w in enumerate(windows):
        up, down = (d - 1) % devices, (d + 1) % devices
        m.d.comb += [
            first[d].eq(below(shifts[up])),
            tracked[d].eq(below(workgroups) & Mux(staged, ~0, ~first[d])),
            goes_on[d].eq(below(Mux(workgroups > shifts[d], workgroups - shifts[d], 0))),
            unstored[d].eq(below(dispatched[d]) & ~stored[d]),
            coming[d].eq((sent[up] << shifts[up]) & ~arrived[d]),
            complete[d].eq(stored[d] & (arrived[d] | first[d]) & tracked[d] & ~fired[d]),
            unsent[d].eq(fired[d] & goes_on[d] & ~sent[d]),
        ]
        stores, _ = some(unstored[d])
        arrives, _ = some(coming[d])
        fires, fires_wg = some(complete[d])
        sends, _ = some(unsent[d])
        seen = Signal(index)
        with m.If(spec.any_sequence(1)):
            m.d.sync += seen.eq(windows[down].head)
        taken = w.dispatch.valid & w.dispatch.ready
        m.d.sync += [
            stored[d].eq(stored[d] | stores),
            arrived[d].eq(arrived[d] | arrives),
            fired[d].eq(fired[d] | fires),
            sent[d].eq(sent[d] | sends | (stores & goes_on[d] & ~tracked[d])),
            dispatched[d].eq(dispatched[d] + taken),
        ]
        m.d.comb += [
            w.dispatch.valid.eq(spec.any_sequence(1) & (dispatched[d] < workgroups)),
            w.dispatch.payload.wg.eq(dispatched[d]),
            w.dispatch.payload.tiles.eq((tracked[d] & (1 << dispatched[d][:tracker.wg_bits])) != 0),
            w.completion.valid.eq(fires.any()),
            w.completion.wg.eq(fires_wg),
            w.window.eq(window), w.shift.eq(shifts[d]), w.enable_downstream.eq(1),
            w.downstream_head.eq(seen), w.restart.eq(0),
        ]

        open_tiles = vector()
        m.d.comb += open_tiles.eq((stored[d] | arrived[d]) & tracked[d] & ~fired[d])
        for row in range(tracker.sets):
            spec.claim(WAY, _ones(Cat(open_tiles[q] for q in range(row, count, tracker.sets))) <= tracker.ways)
        spec.claim(ROOM, _ones(unsent[d]) <= window)
        spec.claim(LEGAL, ~w.error.valid)
        quiet_here.append((unstored[d] == 0) & (coming[d] == 0) & (complete[d] == 0) & (unsent[d] == 0)
                          & (seen == windows[down].head) & (spec.past(w.head) == w.head) & ~taken
                          & ~spec.inside("sweeping", w))
        _invariants(spec, geometry, w, dict(
            window=window, shift=shifts[d], workgroups=workgroups, dispatched=dispatched[d], seen=seen,
            stored=stored[d], arrived=arrived[d], fired=fired[d], sent=sent[d], first=first[d],
            tracked=tracked[d],
            goes_on=goes_on[d], sent_up=sent[up], shift_up=shifts[up], head_down=windows[down].head))

    quiet = Signal(range(QUIET + 1))
    with m.If(~Cat(quiet_here).all()):
        m.d.sync += quiet.eq(0)
    with m.Elif(quiet != QUIET):
        m.d.sync += quiet.eq(quiet + 1)
    spec.invariant(quiet <= QUIET)
    finished = Cat(count_ == workgroups for count_ in dispatched).all()
    spec.claim(OPENS, implies((quiet == QUIET) & Cat(quiet_here).all() & ~finished,
                              Cat(w.dispatch.ready for w in windows).any()))


def _invariants(spec: Spec, geometry: Geometry, w, of: dict) -> None:
    """What ties one window's registers and memories to the vectors."""
    tracker = geometry.tracker
    slots, count = tracker.window_slots, 1 << tracker.wg_bits

    def inner(name):
        return spec.inside(name, w)

    following, completed, sweeping, sweep = (inner(name) for name in ("following", "completed", "sweeping", "sweep"))
    head, dispatched = w.head, of["dispatched"]
    tiles = [spec.peek(w.tiles, slot) for slot in range(slots)]
    done = [spec.peek(w.progress, slot) for slot in range(slots)]
    reported = Signal(count)
    spec.m.d.comb += reported.eq(of["fired"] & ~Mux(completed.valid, 1 << completed.wg, 0))

    spec.invariant(following == dispatched)
    spec.invariant((head <= following) & (following <= of["workgroups"]))
    spec.invariant(following <= head + of["window"])
    spec.invariant(following + of["shift"] <= of["head_down"] + of["window"])
    limit = inner("limit")
    spec.invariant(inner("window") <= of["window"])
    spec.invariant(inner("lead") + of["shift"] <= of["window"])
    spec.invariant(limit <= head + of["window"])
    spec.invariant(limit + of["shift"] <= of["head_down"] + of["window"])
    spec.invariant((inner("downstream_head") <= of["seen"]) & (of["seen"] <= of["head_down"]))

    spec.invariant(implies(sweeping, (dispatched == 0) & (of["stored"] == 0) & (of["fired"] == 0)
                           & ~completed.valid & (sweep < slots)))
    spec.invariant((of["fired"] & ~(of["stored"] & (of["arrived"] | of["first"]) & of["tracked"])) == 0)
    spec.invariant((of["sent"] & ~(Mux_(of["tracked"], of["fired"], of["stored"]) & of["goes_on"])) == 0)
    spec.invariant((~of["tracked"] & of["goes_on"] & of["stored"] & ~of["sent"]) == 0)
    spec.invariant((of["arrived"] & ~(of["sent_up"] << of["shift_up"])) == 0)
    spec.invariant(implies(completed.valid, (of["fired"] & (1 << completed.wg)) != 0))
    for q in range(count):
        row, owner = q % slots, q // slots
        here = (head <= q) & (following > q)
        so_far = Mux(done[row].owner == owner, done[row].count, 0)
        spec.invariant(implies(of["stored"][q], following > q))
        spec.invariant(implies(here, tiles[row] == of["tracked"][q]))
        spec.invariant(implies(here, so_far == reported[q]))
        spec.invariant(implies(~sweeping & (following <= q), so_far == 0))
        spec.invariant(implies((head > q) & of["tracked"][q], reported[q]))
    for row in range(slots):
        spec.invariant(implies(sweeping & (row < sweep), (done[row].count == 0) & (done[row].owner == 0)))
        slot = (slots - 1).bit_length()
        started = ~sweeping
        spec.invariant(implies(started & (head[:slot] == row), (inner("head_tiles").data == tiles[row])
                               & (inner("head_progress").data.as_value() == done[row].as_value())))
        spec.invariant(implies(completed.valid & (completed.wg[:slot] == row),
                               (inner("done_tiles").data == tiles[row])
                               & (inner("done_progress").data.as_value() == done[row].as_value())))


def Mux_(select, one, other):
    """Bit by bit."""
    return (select & one) | (~select & other)


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dispatch_window.py", old, new)

    ignored = ("limit.eq(Mux(self.enable_downstream & (there < here), there, here))", "limit.eq(here)")
    mistakes = (
        broken("the neighbour's window is ignored", WAY, *ignored),
        broken("the neighbour's window is ignored", ROOM, *ignored),
        broken("the last workgroup of the window never starts", OPENS,
               "there.eq(downstream_head + lead)", "there.eq(downstream_head + lead - 1)"),
        broken("a completion is counted twice", OPENS, "progress_write.data.count.eq(count + 1)",
               "progress_write.data.count.eq(count + 2)"),
        broken("a completion of the head is refused", LEGAL, "completed.wg >= self.head", "completed.wg > self.head"),
    )
    return [Property(
        f"forward progress, {devices} GPUs", "dispatch_window",
        "no reachable state in which every stream waits for another", progress, mistakes,
        build=lambda package, geometry, devices=devices: Ring(package, geometry, devices),
        geometry=SMALL, searches=(Search(SMALL, 24),), depth=QUIET + 2,
        reason="sets and workgroups are few: the state has a bit for each workgroup of each GPU", quick=devices == 2)
            for devices in (2, 3)]
