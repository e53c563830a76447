"""GPUs in a ring, each with the real `DispatchWindow`, under any schedule: none ever waits for the others for good.

The rest of a GPU is reduced to what the window protocol can see of it. A wavefront tile is a bit in a few vectors:
*stored* (its compute units have written it, here or at the downstream device), *arrived* (the upstream device's data
for it), *fired* (the Tracker's trigger: reported to the window, and queued as a DMA command if the tile goes on),
*sent*. In each cycle, and independently at each device, any tile that can make its next step may make it, or none
does; the neighbour's head is seen after any delay. So every order and every delay of DRAM, link, Tracker, event stream,
DMA table and engines is covered, also orders that the hardware excludes.

The schedule is arbitrary: on each device, which workgroups are tracked, which go on, and to which id at the downstream
device. Assumed is only what `sim_models.schedule` computes and the driver refuses otherwise: ids are the order of
dispatch; no two workgroups go to one id, and what is gone to is tracked; a route leads to an id that is no smaller than
its own, larger if the workgroup is tracked (causality), by no more than the slack; the slack is less than the window. A
ring reduce-scatter, staged or not, in slices or not, is one such schedule.

What is left out are the places where the hardware holds things back for want of room. They are three, and each has a
claim that it never happens: a way of the Tracker, the queue of ready commands, the window. With the first two, nothing
that has been dispatched can be held up for ever: every trigger is taken, so every update is, so every arrival is. So
what remains is a state in which everything dispatched has been done and no window opens; the third claim says that
there is none. Commands that wait go to different ids, all inside the downstream window: so they are no more than its
tiles, for which the queue has room.
"""

from dataclasses import dataclass
from types import ModuleType

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring

from rtl.geometry import DmaGeometry, Geometry, TrackerGeometry

from .broken import Broken
from .property import Property, Search
from .spec import Spec, implies

QUIET = 4  #: cycles after which a window has made of its inputs what it can

WAY = "an update finds a way: open tiles of a set are never more than its ways"
ROOM = "a trigger finds room: what a command that waits belongs to is open downstream, inside the window"
OPENS = "when all that was dispatched is done, a window opens or all have finished"
LEGAL = "the window sees no error"


@dataclass(frozen=True)
class Shape:
    """GPUs, and the size of each."""

    devices: int
    tiles: int = 1  #: wavefront tiles of a workgroup
    sets: int = 4
    ways: int = 1
    wg_bits: int = 4

    @property
    def geometry(self) -> Geometry:
        return Geometry(TrackerGeometry(sets=self.sets, ways=self.ways, banks=1, wg_bits=self.wg_bits, wf_bits=1,
                                        address_bits=32), dma=DmaGeometry(regions=2))

    def __str__(self) -> str:
        return (f"{self.devices} GPUs, {1 << self.wg_bits} workgroups of {self.tiles}, {self.sets} sets of "
                f"{self.ways}")


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


@dataclass
class _Device:
    """A device's part in the schedule, arbitrary and constant: vectors of a bit per workgroup, ids by workgroup."""

    workgroups: Signal
    slack: Signal
    tracked: Signal
    goes_on: Signal
    to: list[Signal]

    def routes_to(self, q: int) -> list:
        """For each workgroup, whether it goes on to id `q`."""
        return [self.goes_on[source] & (to == q) for source, to in enumerate(self.to)]


def _schedule(spec: Spec, count: int, index: int, window: Signal, devices: int) -> list[_Device]:
    """Any schedule that keeps the rules."""
    made = [_Device(spec.any_constant(index), spec.any_constant(index), spec.any_constant(count),
                    spec.any_constant(count), [spec.any_constant(index) for _ in range(count)]) for _ in range(devices)]
    for d, own in enumerate(made):
        down = made[(d + 1) % devices]
        spec.assume((own.workgroups <= count) & (own.slack < window))
        spec.assume(Cat(own.workgroups > q for q in range(count)) & (own.tracked | own.goes_on)
                    == own.tracked | own.goes_on)
        for q in range(count):
            to = own.to[q]
            spec.assume(implies(own.goes_on[q], (to >= q + own.tracked[q]) & (to <= q + own.slack)
                                & (to < down.workgroups)))
            arriving = own.routes_to(q)
            spec.assume(_ones(arriving) <= 1)
            spec.assume(implies(Cat(arriving).any(), down.tracked[q]))
    return made


def progress(spec: Spec, geometry: Geometry, tiles: int) -> None:
    """See the module's text."""
    m, tracker = spec.m, geometry.tracker
    windows = spec.design.windows
    devices, count = len(windows), 1 << tracker.wg_bits
    index = tracker.wg_bits + 1
    window = spec.any_constant(index)
    spec.assume((window >= 1) & (window <= tracker.sets * (tracker.ways // tiles)))
    schedule = _schedule(spec, count, index, window, devices)

    def vector():
        """A bit for each tile, those of a workgroup side by side."""
        return Signal(count * tiles)

    def of_tiles(workgroups):
        """A vector with the workgroups' bits."""
        return Cat(workgroups[q] for q in range(count) for _ in range(tiles))

    def below(limit):
        """The tiles of workgroups below `limit`."""
        return Cat(limit > q for q in range(count) for _ in range(tiles))

    def there(bits, own):
        """Bits of tiles as bits of the tiles that they become part of downstream."""
        return Cat(Cat(goes & bits[source * tiles + wf] for source, goes in enumerate(own.routes_to(q))).any()
                   for q in range(count) for wf in range(tiles))

    def some(able):
        """One of the tiles of `able` or none: as a one-hot vector, and its number."""
        pick, step = spec.any_sequence(range(count * tiles)), vector()
        m.d.comb += step.eq(Mux(spec.any_sequence(1), able & (1 << pick), 0))
        return step, pick

    stored, arrived, fired, sent = ([vector() for _ in windows] for _ in range(4))
    fed, goes_on, tracked, complete, coming, came = ([vector() for _ in windows] for _ in range(6))
    unsent, unstored, quiet_here = [vector() for _ in windows], [vector() for _ in windows], []
    dispatched = [Signal(index) for _ in windows]
    for d, w in enumerate(windows):
        up, down, own = (d - 1) % devices, (d + 1) % devices, schedule[d]
        m.d.comb += [
            fed[d].eq(there(Const(-1, count * tiles), schedule[up])),
            tracked[d].eq(of_tiles(own.tracked)),
            goes_on[d].eq(of_tiles(own.goes_on)),
            unstored[d].eq(below(dispatched[d]) & ~stored[d]),
            came[d].eq(there(sent[up], schedule[up])),
            coming[d].eq(came[d] & ~arrived[d]),
            complete[d].eq(stored[d] & (arrived[d] | ~fed[d]) & tracked[d] & ~fired[d]),
            unsent[d].eq(fired[d] & goes_on[d] & ~sent[d]),
        ]
        stores, _ = some(unstored[d])
        arrives, _ = some(coming[d])
        fires, fires_tile = some(complete[d])
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
            w.dispatch.valid.eq(spec.any_sequence(1) & (dispatched[d] < own.workgroups)),
            w.dispatch.payload.wg.eq(dispatched[d]),
            w.dispatch.payload.tiles.eq(Mux((own.tracked & (1 << dispatched[d][:tracker.wg_bits])) != 0, tiles, 0)),
            w.completion.valid.eq(fires.any()),
            w.completion.wg.eq(fires_tile >> (tiles.bit_length() - 1)),
            w.window.eq(window), w.shift.eq(own.slack), w.enable_downstream.eq(1),
            w.downstream_head.eq(seen), w.restart.eq(0),
        ]

        open_tiles = vector()
        m.d.comb += open_tiles.eq((stored[d] | arrived[d]) & tracked[d] & ~fired[d])
        for row in range(tracker.sets):
            spec.claim(WAY, _ones(Cat(open_tiles[q * tiles:(q + 1) * tiles] for q in range(row, count, tracker.sets)))
                       <= tracker.ways)
        head_down = windows[down].head
        for q, to in enumerate(own.to):
            spec.claim(ROOM, implies(unsent[d][q * tiles:(q + 1) * tiles].any(),
                                     (to >= head_down) & (to < head_down + window)))
        spec.claim(LEGAL, ~w.error.valid)
        quiet_here.append((unstored[d] == 0) & (coming[d] == 0) & (complete[d] == 0) & (unsent[d] == 0)
                          & (seen == windows[down].head) & (spec.past(w.head) == w.head) & ~taken
                          & ~spec.inside("sweeping", w))
        _invariants(spec, geometry, w, tiles, dict(
            window=window, shift=own.slack, workgroups=own.workgroups, dispatched=dispatched[d], seen=seen,
            stored=stored[d], arrived=arrived[d], fired=fired[d], sent=sent[d], fed=fed[d], tracked=tracked[d],
            goes_on=goes_on[d], came=came[d], head_down=head_down))

    quiet = Signal(range(QUIET + 1))
    with m.If(~Cat(quiet_here).all()):
        m.d.sync += quiet.eq(0)
    with m.Elif(quiet != QUIET):
        m.d.sync += quiet.eq(quiet + 1)
    spec.invariant(quiet <= QUIET)
    finished = Cat(count_ == own.workgroups for count_, own in zip(dispatched, schedule)).all()
    spec.claim(OPENS, implies((quiet == QUIET) & Cat(quiet_here).all() & ~finished,
                              Cat(w.dispatch.ready for w in windows).any()))


def _invariants(spec: Spec, geometry: Geometry, w, per: int, of: dict) -> None:
    """What ties one window's registers and memories to the vectors; `per`: tiles of a workgroup."""
    tracker = geometry.tracker
    slots, count = tracker.window_slots, 1 << tracker.wg_bits

    def inner(name):
        return spec.inside(name, w)

    following, completed, sweeping, sweep = (inner(name) for name in ("following", "completed", "sweeping", "sweep"))
    head, dispatched = w.head, of["dispatched"]
    tiles = [spec.peek(w.tiles, slot) for slot in range(slots)]
    done = [spec.peek(w.progress, slot) for slot in range(slots)]

    spec.invariant(following == dispatched)
    spec.invariant((head <= following) & (following <= of["workgroups"]))
    spec.invariant(following <= head + of["window"])
    spec.invariant(following + of["shift"] <= of["head_down"] + of["window"])
    limit = inner("limit")
    spec.invariant(inner("window") <= of["window"])
    spec.invariant(inner("lead") + of["shift"] <= of["window"])
    spec.invariant(limit <= head + of["window"])
    spec.invariant(limit + of["shift"] <= of["head_down"] + of["window"])
    spec.invariant(inner("same_kernel"))
    spec.invariant((inner("downstream_head") <= of["seen"]) & (of["seen"] <= of["head_down"]))

    spec.invariant(implies(sweeping, (dispatched == 0) & (of["stored"] == 0) & (of["fired"] == 0)
                           & ~completed.valid & (sweep < slots)))
    spec.invariant((of["fired"] & ~(of["stored"] & (of["arrived"] | ~of["fed"]) & of["tracked"])) == 0)
    spec.invariant((of["sent"] & ~(Mux_(of["tracked"], of["fired"], of["stored"]) & of["goes_on"])) == 0)
    spec.invariant((~of["tracked"] & of["goes_on"] & of["stored"] & ~of["sent"]) == 0)
    spec.invariant((of["arrived"] & ~of["came"]) == 0)
    for q in range(count):
        row, owner = q % slots, q // slots
        mine = slice(q * per, (q + 1) * per)
        here = (head <= q) & (following > q)
        so_far = Mux(done[row].owner == owner, done[row].count, 0)
        pending = completed.valid & (completed.wg == q)
        reported = _ones(of["fired"][mine])
        wanted = Mux(of["tracked"][q * per], per, 0)
        spec.invariant(implies(pending, reported != 0))
        spec.invariant(implies(of["stored"][mine].any(), following > q))
        spec.invariant(implies(here, tiles[row] == wanted))
        spec.invariant(implies(here, so_far + pending == reported))
        spec.invariant(implies(~sweeping & (following <= q), so_far == 0))
        spec.invariant(implies((head > q), (reported == wanted) & ~pending))
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


#: Two GPUs are proved in `make test`.
SHAPES = (Shape(2), Shape(3), Shape(4, wg_bits=3), Shape(2, tiles=2, sets=2, ways=4, wg_bits=3))


def properties() -> list[Property]:
    def broken(what, claim, old, new):
        return Broken(what, claim, "dispatch_window.py", old, new)

    ignored = ("Mux(there < here, there, here)", "here")
    mistakes = (
        broken("the neighbour's window is ignored", WAY, *ignored),
        broken("the neighbour's window is ignored", ROOM, *ignored),
        broken("the last workgroup of the window never starts", OPENS,
               "there.eq(downstream_head + lead)", "there.eq(downstream_head + lead - 1)"),
        broken("a completion is not counted", OPENS, "progress_write.data.count.eq(count + 1)",
               "progress_write.data.count.eq(count)"),
        broken("a completion of the head is refused", LEGAL, "completed.wg >= self.head", "completed.wg > self.head"),
    )
    return [Property(
        f"forward progress, {shape}", "dispatch_window",
        "no reachable state in which every stream waits for another, under any schedule with slack below the window",
        lambda spec, geometry, shape=shape: progress(spec, geometry, shape.tiles), mistakes,
        build=lambda package, geometry, shape=shape: Ring(package, geometry, shape.devices),
        geometry=shape.geometry, searches=(Search(shape.geometry, 24),), depth=QUIET + 2,
        reason="sets and workgroups are few: the state has a bit for each tile of each GPU", quick=shape == SHAPES[0],
        timeout_s=1800)
            for shape in SHAPES]
