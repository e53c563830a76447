"""GPUs, each with the real `DispatchWindow`, under any schedule: none ever waits for the others for good.

The rest of a GPU is reduced to what the window protocol can see of it. A wavefront tile is a bit in a few vectors:
*stored* (its compute units have written it, here or at the peer, or, of a tile that only arrives, the window's
admission of it has been counted), *fired* (the Tracker's trigger: reported to the window, and queued as a DMA command
if the tile goes on), *read* (its lines are among the outstanding ones), *sent*, *landed* (arrived where it goes). In
each cycle, and independently at each device, any tile that can make its next step may make it, or none does; a peer's
head is seen after any delay. So every order and every delay of DRAM, link, Tracker, event stream, DMA table and engines
is covered, also orders that the hardware excludes.

The schedule is arbitrary: on each device, which tiles open an id, which of those are tracked, which tiles go on, to
which peer and which id, in which order they are dispatched, and what their requests say. Assumed is only what
the schedule computes and the driver refuses otherwise: ids are 0, 1, 2, ..., each opened by one tile; no two
tiles of a device go to one id, and what is gone to is tracked; a tracked tile goes on to a larger id (causality); a
request names no smaller id than its tile goes to, and none outside the peer's last window; the largest id that a
request names exceeds the smallest that its tile, or one dispatched later, touches by no more than the slack; the slack
is less than the window. A ring reduce-scatter, staged or not, in slices or not, in order or shuffled, is one such
schedule; with several peers a direct one is.

With `restarts` each GPU is restarted once, in a cycle of its own, whatever it was doing: until then its requests,
completions and admissions are arbitrary, and so is its head, which others see as that of another kernel. From then on
it runs the schedule. So nothing of the kernel before, whole or aborted, and no order in which GPUs are restarted comes
through to this one.

What is left out are the places where the hardware holds things back for want of room. Three of them have a claim that
it never happens, or not for good: a way of the Tracker, the queue of ready commands, the window. The others wait for
nobody else's window: the event stream for whoever takes events, engines for outstanding lines, which leave on the link.
They are part of the model. With the first two claims, nothing that has been dispatched can be held up for ever: every
trigger is taken, so every update is, so every arrival is. So what remains is a state in which everything dispatched has
been done and no window opens; the third claim says that there is none. Commands that wait go to different ids of a
peer, all inside its window: so they are no more than its tiles for each peer, for which the queue has room.
"""

from dataclasses import dataclass
from types import ModuleType

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring

from t3sim.rtl.geometry import DmaGeometry, Geometry, TrackerGeometry
from t3sim.rtl.order import may_start
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import Spec, implies

QUIET = 4  #: cycles after which a window has made of its inputs what it can
EVENTS = 2  #: events that wait inside

WAY = "an update always finds a way: a set never has more open tiles than ways"
ROOM = "a trigger always finds room: a waiting command's tile is open at its peer, inside the window"
RULE = "every id of an admitted request is inside its GPU's window"
OPENS = "when everything dispatched is done, a window opens or all have finished"
LEGAL = "the window sees no error"
OWN = "no tile is mistaken for one that its workgroup lacks"


@dataclass(frozen=True)
class Shape:
    """GPUs, and the size of each."""

    devices: int
    tiles: int = 1  #: wavefront tiles of a workgroup
    sets: int = 4
    ways: int = 1
    wg_bits: int = 4
    peers: int = 1
    restarts: bool = False  #: each window is restarted once, at any time and in the middle of anything

    @property
    def geometry(self) -> Geometry:
        return Geometry(TrackerGeometry(sets=self.sets, ways=self.ways, banks=1, wg_bits=self.wg_bits, wf_bits=1,
                                        address_bits=32), dma=DmaGeometry(regions=2, peers=self.peers))

    def __str__(self) -> str:
        peers = f" with {self.peers} peers" if self.peers > 1 else ""
        restarts = ", restarted at any time" if self.restarts else ""
        return (f"{self.devices} GPUs{peers}, {1 << self.wg_bits} workgroups of {self.tiles}, {self.sets} sets of "
                f"{self.ways}{restarts}")


class Gpus(wiring.Component):
    """The windows of `devices` GPUs; the specification connects them."""

    def __init__(self, package: ModuleType, geometry: Geometry, shape: Shape) -> None:
        super().__init__({})
        self.per, self.restarts = shape.tiles, shape.restarts
        self.windows = [package.blocks.BLOCKS["dispatch_window"](geometry) for _ in range(shape.devices)]

    def elaborate(self, platform) -> Module:
        m = Module()
        for number, window in enumerate(self.windows):
            m.submodules[f"window_{number}"] = window
        return m


def _ones(bits):
    return sum(bits[i] for i in range(len(bits)))


def _larger(one, other):
    return Mux(one > other, one, other)


def _smaller(one, other):
    return Mux(one < other, one, other)


@dataclass
class _Device:
    """A device's part in the schedule, arbitrary and constant: vectors of a bit per tile of an output, and numbers.

    Those below `ids` open the id of the same number, those from there to `tiles` none.
    """

    number: int
    ids: Signal
    tiles: Signal
    tracked: Signal
    goes_on: Signal
    reaches: Signal
    starts: Signal
    announced: Signal  #: complete tiles raise an event, whether they go on or not
    to: list[Signal]
    there: list[Signal]
    peer: list[Signal]  #: which of the device's peers

    def opens(self, q: int) -> Value:
        return self.ids > q

    def held(self, q: int) -> Value:
        """Return whether a tile only arrives, and is tracked: it is complete no sooner than the window admits it."""
        return self.opens(q) & ~self.starts[q] & self.tracked[q]

    def touches(self, q: int) -> Value:
        return self.opens(q) | self.reaches[q]

    def largest(self, q: int) -> Value:
        """Return the largest id that the request names, if any."""
        return _larger(Mux(self.opens(q), q, 0), Mux(self.reaches[q], self.there[q], 0))

    def smallest(self, q: int, none: int) -> Value:
        """Return the smallest id that the tile touches, `none` if it touches none."""
        return _smaller(Mux(self.opens(q), q, none), Mux(self.goes_on[q], self.to[q], none))

    def routes_to(self, q: int, which: int) -> list:
        """Return, for each tile, whether it goes on to id `q` of a peer."""
        return [self.goes_on[source] & (to == q) & (peer == which)
                for source, (to, peer) in enumerate(zip(self.to, self.peer))]


def _schedule(spec: Spec, count: int, index: int, window: Signal, slack: Signal, devices: int,
              peers: int) -> list[_Device]:
    """Assume any schedule that keeps the rules."""
    def each(shape):
        return [spec.any_constant(shape) for _ in range(count)]

    made = [_Device(number, spec.any_constant(index), spec.any_constant(index),
                    *(spec.any_constant(count) for _ in range(5)), each(index), each(index), each(range(max(2, peers))))
            for number in range(devices)]
    spec.assume(slack < window)
    for own in made:
        spec.assume((own.ids <= own.tiles) & (own.tiles <= count))
        spec.assume((own.tracked & ~Cat(own.opens(q) for q in range(count))) == 0)
        spec.assume(((own.goes_on | own.reaches) & ~Cat(own.tiles > q for q in range(count))) == 0)
        spec.assume((own.goes_on & ~own.reaches) == 0)
        for q in range(count):
            to = own.to[q]
            spec.assume(own.peer[q] < peers)
            spec.assume(implies(own.goes_on[q], own.there[q] >= to))
            spec.assume(implies(own.goes_on[q] & own.tracked[q], to > q))
            for which in range(peers):
                there = made[(own.number + 1 + which) % devices]
                arriving = own.routes_to(q, which)
                spec.assume(_ones(arriving) <= 1)
                spec.assume(implies(Cat(arriving).any(), there.tracked[q]))
                spec.assume(implies(own.reaches[q] & (own.peer[q] == which), own.there[q] < there.ids + window))
    return made


class _Queue:
    """Which tiles the requests in a window's queue are for; follows `TwoEntryQueue`."""

    def __init__(self, spec: Spec, w, pick: Signal, taken: Value, goes: Value) -> None:
        m, count = spec.m, pick.shape()
        self.front, self.back = Signal(count), Signal(count)
        queue = spec.inside("queue", w)
        self.front_valid, self.back_valid = spec.inside("front_valid", queue), spec.inside("back_valid", queue)
        self.front_payload, self.back_payload = spec.inside("front", queue), spec.inside("back", queue)
        with m.If(~self.front_valid | goes):
            m.d.sync += self.front.eq(Mux(self.back_valid, self.back, pick))
        with m.Elif(taken):
            m.d.sync += self.back.eq(pick)


def progress(spec: Spec, geometry: Geometry, tiles: int) -> None:
    """Claim forward progress; see the module's text."""
    m, tracker, peers = spec.m, geometry.tracker, geometry.dma.peers
    windows = spec.design.windows
    devices, count = len(windows), 1 << tracker.wg_bits
    index = tracker.wg_bits + 1
    window, slack = spec.any_constant(index), spec.any_constant(index)
    spec.assume((window >= 1) & (window <= tracker.sets * (tracker.ways // tiles)))
    schedule = _schedule(spec, count, index, window, slack, devices, peers)

    def vector():
        """Make a vector with a bit for each wavefront tile, those of a workgroup side by side."""
        return Signal(count * tiles)

    def of_tiles(workgroups):
        """Make a vector with the workgroups' bits."""
        return Cat(workgroups[q] for q in range(count) for _ in range(tiles))

    def some(able):
        """Choose one of the tiles of `able` or none: as a one-hot vector, and its number."""
        pick, step = spec.any_sequence(range(count * tiles)), vector()
        m.d.comb += step.eq(Mux(spec.any_sequence(1), able & (1 << pick), 0))
        return step, pick

    def sources(d):
        """Return (device, which of its peers `d` is) of all that send to `d`."""
        return [((d - 1 - which) % devices, which) for which in range(peers)]

    def at_target(bits, d):
        """Return the bits of senders' tiles, any of them, as bits of the tiles of `d` that they become part of."""
        routes = [(source, schedule[source].routes_to(q, which)) for q in range(count) for source, which in sources(d)]
        found = []
        for q in range(count):
            for wf in range(tiles):
                found.append(Cat(Cat(goes & bits[source][one * tiles + wf] for one, goes in enumerate(routes_to)).any()
                                 for source, routes_to in routes[q * peers:(q + 1) * peers]).any())
        return Cat(found)

    stored, fired, read, sent, landed = ([vector() for _ in windows] for _ in range(5))
    goes_on, tracked, missing, arrived, complete = ([vector() for _ in windows] for _ in range(5))
    unsent, unread, unstored, underway = ([vector() for _ in windows] for _ in range(4))
    asked, admitted, quiet_here, opening, finished = ([] for _ in range(5))
    restarted = [Signal(name=f"restarted_{d}") if spec.design.restarts else Const(1) for d in range(devices)]
    lines = spec.any_constant(range(1, count * tiles + 1))
    spec.assume(lines != 0)
    for d, w in enumerate(windows):
        own = schedule[d]
        asked.append(Signal(count))
        admitted.append(Signal(count))
        everyone = Cat(own.tiles > q for q in range(count))
        not_landed = [~bits for bits in landed]
        m.d.comb += [
            tracked[d].eq(of_tiles(own.tracked)),
            goes_on[d].eq(of_tiles(own.goes_on)),
            unstored[d].eq(of_tiles(admitted[d]) & ~stored[d]),
            missing[d].eq(at_target(not_landed, d)),
            arrived[d].eq(at_target(landed, d)),
            underway[d].eq(sent[d] & ~landed[d]),
            complete[d].eq(stored[d] & ~missing[d] & tracked[d] & ~fired[d]),
            unread[d].eq(fired[d] & goes_on[d] & ~read[d]),
            unsent[d].eq(fired[d] & goes_on[d] & ~sent[d]),
        ]
        events = Signal(range(EVENTS + 1))
        held = vector()
        m.d.comb += held.eq(of_tiles(Cat(own.held(q) for q in range(count))))
        stores, _ = some(unstored[d] & ~held)
        admission, admits = w.admissions, vector()
        now = restarted[d]  # in the kernel; what this GPU did before is arbitrary
        m.d.comb += [
            admission.ready.eq(spec.any_sequence(1)),
            admits.eq(Mux(now & admission.valid & admission.ready,
                          1 << admission.payload.wg * tiles + admission.payload.wf, 0)),
        ]
        lands, _ = some(underway[d])
        announced = vector()
        m.d.comb += announced.eq(of_tiles(own.announced))
        fires, fires_tile = some(complete[d] & Mux(events == EVENTS, ~announced, (1 << count * tiles) - 1))
        reads, _ = some(Mux(_ones(read[d] & tracked[d] & ~sent[d]) < lines, unread[d], 0))
        sends, _ = some(read[d] & tracked[d] & ~sent[d])
        raised, event_taken = (fires & announced).any(), (events != 0) & spec.any_sequence(1)
        seen = [Signal(index, name=f"seen_{d}_{which}") for which in range(peers)]
        down = [(d + 1 + which) % devices for which in range(peers)]
        seen_now = [Signal(name=f"seen_now_{d}_{which}") if spec.design.restarts else Const(1)
                    for which in range(peers)]  # the head that was seen is of this kernel
        for which, (head, of_now) in enumerate(zip(seen, seen_now)):
            with m.If(spec.any_sequence(1)):
                m.d.sync += head.eq(windows[down[which]].head)
                if spec.design.restarts:
                    m.d.sync += of_now.eq(windows[down[which]].epoch)
            m.d.comb += w.peer_heads[which].eq(head)
            if spec.design.restarts:
                m.d.comb += w.peer_epochs[which].eq(of_now)

        pick = spec.any_sequence(range(count))
        offers, taken = spec.any_sequence(1), Signal()
        goes, able = spec.inside("goes", w), spec.inside("able", w)
        queue = _Queue(spec, w, pick, taken, goes)
        first = Signal(count)
        m.d.comb += first.eq(1 << queue.front)
        m.d.comb += taken.eq(w.dispatch.valid & w.dispatch.ready & now)
        still = everyone & ~asked[d]
        spec.assume(implies(offers & now, (still & (1 << pick)) != 0))
        request = w.dispatch.payload
        m.d.comb += [
            w.dispatch.valid.eq(offers),
            Value.cast(request).eq(spec.any_sequence(len(Value.cast(request)))),
            w.start.eq(spec.any_sequence(1)),
        ]
        for q in range(count):
            with m.If(now & (pick == q)):
                m.d.comb += [request.tiles.eq(Mux(own.tracked[q], tiles, 0)), request.there.eq(own.there[q]),
                             request.peer.eq(own.peer[q]), request.opens.eq(own.opens(q)),
                             request.reaches.eq(own.reaches[q]), request.starts.eq(own.starts[q])]
                with m.If(own.opens(q)):
                    m.d.comb += request.id.eq(q)
            # Its largest is never too far ahead of what comes later.
            spec.assume(implies(offers & now & (pick == q) & own.touches(q),
                                (Cat(own.largest(q) <= own.smallest(x, 4 * count) + slack for x in range(count))
                                 | ~still).all()))
        m.d.sync += [
            asked[d].eq(asked[d] | Mux(taken, 1 << pick, 0)),
            admitted[d].eq(admitted[d] | Mux(goes & now, first, 0)),
            stored[d].eq(stored[d] | stores | admits),
            fired[d].eq(fired[d] | fires),
            events.eq(events + raised - event_taken),
            read[d].eq(read[d] | reads),
            sent[d].eq(sent[d] | sends | (stores & goes_on[d] & ~tracked[d])),
            landed[d].eq(landed[d] | lands),
        ]
        of_now = Value.cast(w.completion).shape()
        m.d.comb += [
            Value.cast(w.completion).eq(0 if not spec.design.restarts else spec.any_sequence(of_now)),
            w.window.eq(window), w.restart.eq(0), w.upcoming.eq(spec.any_sequence(tracker.wg_bits)),
        ]
        spec.assume(implies(now & w.completion.valid, w.completion.wg == spec.past(w.upcoming)))
        with m.If(now):
            m.d.comb += [w.completion.valid.eq(fires.any()),
                         w.completion.wf.eq(fires_tile % tiles),
                         w.completion.wg.eq(fires_tile >> (tiles.bit_length() - 1))]
        if spec.design.restarts:
            m.d.comb += [w.restart.eq(~now & spec.any_sequence(1)), w.next_epoch.eq(1)]
            m.d.sync += now.eq(now | w.restart)

        open_tiles = vector()
        m.d.comb += open_tiles.eq((stored[d] | arrived[d]) & tracked[d] & ~fired[d])
        for row in range(tracker.sets):
            spec.claim(WAY, _ones(Cat(open_tiles[q * tiles:(q + 1) * tiles] for q in range(row, count, tracker.sets)))
                       <= tracker.ways)
        for which, device in enumerate(down):
            head_there, there = windows[device].head, restarted[device]
            for q, to in enumerate(own.to):
                spec.claim(ROOM, implies(unsent[d][q * tiles:(q + 1) * tiles].any() & (own.peer[q] == which),
                                         there & (to >= head_there) & (to < head_there + window)))
                spec.claim(RULE, implies(now & goes & first[q] & (own.peer[q] == which), may_start(
                    own.opens(q), own.reaches[q], q, own.there[q], w.head + window,
                    Mux(there, head_there + window, 0))))
        spec.claim(LEGAL, implies(now & spec.past(now) if spec.design.restarts else 1, ~w.error.valid))
        spec.claim(OWN, implies(now & w.completion.valid, ~w.foreign))
        finished.append(admitted[d] == everyone)
        opening.append(queue.front_valid & able)
        quiet_here.append(((unstored[d] & ~held) == 0) & ~admission.valid & (underway[d] == 0) & (complete[d] == 0)
                          & (unsent[d] == 0) & (events == 0)
                          & Cat(head == windows[device].head for head, device in zip(seen, down)).all()
                          & Cat(restarted).all() & Cat(seen_now).all()
                          & (spec.past(w.head) == w.head) & ~taken & ~goes
                          & (queue.front_valid | (asked[d] == everyone)) & ~spec.inside("sweeping", w))
        _queue_invariants(spec, own, w, queue, asked[d], admitted[d], slack, now)
        spec.invariant(now | (asked[d] | admitted[d] | stored[d] | fired[d] | read[d] | sent[d] | landed[d] == 0))
        _invariants(spec, geometry, own, w, tiles, dict(
            window=window, admitted=admitted[d], seen=seen, stored=stored[d], missing=missing[d], fired=fired[d],
            read=read[d], sent=sent[d], landed=landed[d], tracked=tracked[d], goes_on=goes_on[d], now=now,
            heads_there=[windows[device].head for device in down], now_there=[restarted[device] for device in down],
            seen_now=seen_now))

    quiet = Signal(range(QUIET + 1))
    with m.If(~Cat(quiet_here).all()):
        m.d.sync += quiet.eq(0)
    with m.Elif(quiet != QUIET):
        m.d.sync += quiet.eq(quiet + 1)
    spec.invariant(quiet <= QUIET)
    spec.claim(OPENS, implies((quiet == QUIET) & Cat(quiet_here).all() & ~Cat(finished).all(), Cat(opening).any()))


def _queue_invariants(spec: Spec, own: _Device, w, queue: _Queue, asked: Signal, admitted: Signal,
                      slack: Signal, now: Value) -> None:
    """Tie the requests in a window's queue to tiles, and keep the order lawful, from its restart on (`now`)."""
    count = len(asked)
    everyone = Cat(own.tiles > q for q in range(count))
    def invariant(what) -> None:
        spec.invariant(implies(now, what))
    invariant(implies(queue.back_valid, queue.front_valid & (queue.back != queue.front)))
    waiting = Signal(count)
    spec.m.d.comb += waiting.eq(Mux(queue.front_valid, 1 << queue.front, 0) | Mux(queue.back_valid, 1 << queue.back, 0))
    invariant((asked == admitted | waiting) & ((admitted & waiting) == 0) & ((asked & ~everyone) == 0))
    for valid, number, payload, later in (
            (queue.front_valid, queue.front, queue.front_payload, everyone & ~admitted),
            (queue.back_valid, queue.back, queue.back_payload, everyone & ~admitted & ~(1 << queue.front))):
        for q in range(count):
            here = valid & (number == q)
            invariant(implies(here, (payload.there == own.there[q]) & (payload.peer == own.peer[q])
                                   & (payload.opens == own.opens(q)) & (payload.reaches == own.reaches[q])
                                   & (payload.starts == own.starts[q])))
            invariant(implies(here & own.opens(q), payload.id == q))
            invariant(implies(here, payload.tiles == Mux(own.tracked[q], spec.design.per, 0)))
            invariant(implies(here & own.touches(q), (Cat(
                own.largest(q) <= own.smallest(x, 4 * count) + slack for x in range(count)) | ~later).all()))


def _invariants(spec: Spec, geometry: Geometry, own: _Device, w, per: int, of: dict) -> None:
    """Tie one window's registers and memories to the vectors; `per`: tiles of a workgroup."""
    tracker = geometry.tracker
    slots, count = tracker.window_slots, 1 << tracker.wg_bits

    def inner(name):
        return spec.inside(name, w)

    completed, sweeping, sweep = (inner(name) for name in ("completed", "sweeping", "sweep"))
    head, admitted, window = w.head, of["admitted"], of["window"]
    tiles = [spec.peek(w.tiles, slot) for slot in range(slots)]
    done = [spec.peek(w.progress, slot) for slot in range(slots)]

    def invariant(what) -> None:
        spec.invariant(implies(of["now"], what))
    invariant(head <= own.ids)
    spec.invariant(w.epoch == (of["now"] if spec.design.restarts else 0))
    spec.invariant(inner("window") <= window)
    invariant(inner("near") <= head + window)
    for which, (seen, inside, far, there) in enumerate(
            zip(of["seen"], inner("peer_head"), inner("far"), of["heads_there"])):
        of_now, now_there = of["seen_now"][which], of["now_there"][which]
        same = inner("same_kernel")[which] if spec.design.restarts else 1
        spec.invariant(implies(of_now, now_there & (seen <= there)))
        invariant(implies(same, of_now & (inside <= seen)))
        invariant(far <= Mux(now_there, there + window, 0))

    invariant(implies(sweeping, (admitted == 0) & (head == 0) & ~completed.valid & (sweep < slots)))
    invariant((of["fired"] & ~(of["stored"] & ~of["missing"] & of["tracked"])) == 0)
    invariant((of["read"] & ~(of["fired"] & of["goes_on"])) == 0)
    invariant((of["sent"] & ~(Mux_(of["tracked"], of["read"], of["stored"]) & of["goes_on"])) == 0)
    invariant((~of["tracked"] & of["goes_on"] & of["stored"] & ~of["sent"]) == 0)
    invariant((of["landed"] & ~of["sent"]) == 0)
    for q in range(count):
        row, owner = q % slots, q // slots
        mine = slice(q * per, (q + 1) * per)
        so_far = Mux(done[row].owner == owner, done[row].count, 0)
        pending = completed.valid & (completed.wg == q)
        reported = _ones(of["fired"][mine])
        wanted = Mux(own.tracked[q], per, 0)
        matches = tiles[row].opened & (tiles[row].owner == owner)
        opened = admitted[q] & own.opens(q)
        admission, admitting = w.admissions, inner("admitting")
        here = admission.valid & (admission.payload.wg == q)
        invariant(implies(here, admitted[q] & own.held(q) & (admitting <= per)))
        for wf in range(per):
            invariant(implies(admitted[q] & own.held(q),
                                   of["stored"][q * per + wf] == ~(here & (admitting > wf))))
        invariant(implies(admitted[q], own.tiles > q))
        invariant(implies(opened, head + window > q))
        for which, (there, now_there) in enumerate(zip(of["heads_there"], of["now_there"])):
            invariant(implies(admitted[q] & own.reaches[q] & (own.peer[q] == which),
                              now_there & (there + window > own.there[q])))
        invariant(implies(of["stored"][mine].any(), admitted[q]))
        invariant(implies(pending, (reported != 0) & inner("has") & (inner("all_of_it") == wanted)))
        invariant(implies((head <= q) & ~sweeping, matches == opened))
        invariant(implies((head <= q) & opened, (tiles[row].count == wanted) & (so_far + pending == reported)))
        invariant(implies(~sweeping & (head <= q) & ~opened, so_far == 0))
        invariant(implies(head > q, opened & (reported == wanted) & ~pending))
    for row in range(slots):
        slot = (slots - 1).bit_length()
        invariant(implies(sweeping & (row < sweep), (done[row].as_value() == 0) & (tiles[row].as_value() == 0)))
        swept = ~sweeping | (row < sweep)
        invariant(implies(swept & (head[:slot] == row),
                               (inner("head_row").as_value() == tiles[row].as_value())
                               & (inner("head_done").as_value() == done[row].as_value())))
        invariant(implies(swept & (inner("row_slot") == row),
                               inner("done_row").as_value() == tiles[row].as_value()))
        invariant(implies(completed.valid & (completed.wg[:slot] == row),
                               inner("done_before").as_value() == done[row].as_value()))
        invariant(implies(spec.inside("front_valid", inner("queue")) & (inner("first").id[:slot] == row),
                               inner("first_row").as_value() == tiles[row].as_value()))


def Mux_(select, one, other):
    """Choose bit by bit."""
    return (select & one) | (~select & other)


#: The first is proved in `make test`.
SHAPES = (Shape(2, sets=2, wg_bits=2), Shape(2, wg_bits=3), Shape(4, sets=2, wg_bits=2),
          Shape(2, tiles=2, sets=2, ways=2, wg_bits=2), Shape(3, sets=2, wg_bits=2, peers=2),
          Shape(2, sets=2, wg_bits=2, restarts=True), Shape(4, sets=2, wg_bits=2, restarts=True))
_UNSEARCHED = {Shape(2, wg_bits=3): "8 tiles of a GPU in any order take minutes for each broken design"}


def properties() -> list[Property]:
    def broken(what, claim, old, new, file="window/dispatch_window.py"):
        return Broken(what, claim, file, old, new)

    peer_ignored = ("Array(far)[first.peer]", "1 << self._wg_bits + 2")
    mistakes = (
        broken("the peer's window is ignored", WAY, *peer_ignored),
        broken("the peer's window is ignored", ROOM, *peer_ignored),
        broken("the peer's window is ignored", RULE, *peer_ignored),
        broken("the own window is ignored", WAY, "near.eq(self.head + window)", "near.eq(self.head + window + 1)"),
        broken("the last id of a window counts as inside", RULE, "(there < far)", "(there <= far)", "order.py"),
        broken("the last id of the window never goes", OPENS, "near.eq(self.head + window)",
               "near.eq(self.head + window - 1)"),
        broken("a request that names no id of a peer waits for one", OPENS, "(reaches == 0) | ", "", "order.py"),
        broken("a tile that only arrives is admitted while its request waits", ROOM, "with m.If(opens & arrives):",
               "with m.If(queue.output.valid & arrives & (admitting == 0)):"),
        broken("an admission is forgotten for that of the next tile", OPENS, "~(arrives & (admitting != 0))", "1"),
        broken("the head passes an id that was not opened", LEGAL, "row.opened & (row.owner", "(row.owner"),
        broken("a workgroup's last wavefront is not its own", OWN, "self.completion.wf >= done_row.count",
               "self.completion.wf + 1 >= done_row.count"),
        broken("the row is read when a tile is complete", LEGAL, "done_tiles.addr.eq(slot(self.upcoming))",
               "done_tiles.addr.eq(slot(self.completion.wg))"),
        *(broken("a row of tiles is what the memory gives while it is written", LEGAL,
                 f'{port}, {row} = forwarded_read(m, self.tiles, tiles_write, "{row}")',
                 f"{port} = self.tiles.read_port()\n        {row} = {port}.data")
          for port, row in (("head_tiles", "head_row"), ("first_tiles", "first_row"))),
        broken("what is written to a row does not count until the row is read again", OPENS, "read.en | same",
               "read.en", "streams/forwarded_read.py"),
        broken("the row of a completion is read only when a slot comes back", LEGAL, "done_tiles.addr != row_slot",
               "done_tiles.addr == row_slot"),
        broken("a completion is not counted", OPENS, "progress_write.data.count.eq(count + 1)",
               "progress_write.data.count.eq(count)"),
        broken("an id that was never opened counts as opened before", LEGAL,
               "first_tiles.addr.eq(slot(queue.following.id))",
               "first_tiles.addr.eq(slot(first.id))"),
    )
    of_restarts = (
        broken("a peer's head of the kernel before counts", RULE,
               "far[peer].eq(Mux(same_kernel[peer], peer_head[peer] + window, 0))",
               "far[peer].eq(peer_head[peer] + window)"),
        broken("a request of the kernel before goes in this one", RULE,
               "m.submodules.queue = SoftReset(queue, self.restart)", "m.submodules.queue = queue"),
        broken("a completion of the kernel before is counted in this one", LEGAL, "completed.valid.eq(0), ", ""),
        broken("what the kernel before opened is open", LEGAL, "m.d.sync += [sweep.eq(0), sweeping.eq(1)]",
               "m.d.sync += sweep.eq(0)"),
        broken("the head stays where the kernel before left it", LEGAL, "self.head.eq(0), ", ""),
        broken("the window keeps the number of the kernel before", RULE, "self.epoch.eq(self.next_epoch), ", ""),
    )
    return [Property(
        f"forward progress, {shape}", "dispatch_window",
        "in no reachable state does every stream wait for another, under any schedule with slack below the window",
        lambda spec, geometry, shape=shape: progress(spec, geometry, shape.tiles),
        mistakes + of_restarts * shape.restarts,
        build=lambda package, geometry, shape=shape: Gpus(package, geometry, shape),
        geometry=shape.geometry, unsearched=_UNSEARCHED.get(shape, ""),
        searches=(Search((SHAPES[0] if shape in _UNSEARCHED else shape).geometry, 24),), depth=QUIET + 2,
        reason="few sets and workgroups: the state has a bit for each tile of each GPU", quick=shape == SHAPES[0],
        timeout_s=1800)
            for shape in SHAPES]
