"""Places of the requests of a tile that has not fired: in which queue, after what."""

from collections.abc import Iterator

import numpy as np

from t3sim.trace.replay import Replay
from t3sim.trace.schema import CHANNEL_QUEUES, NO_STREAM, ON_LINKS, QUEUES, READ, Kind
from t3sim.trace.tile import Tile
from t3sim.trace.words import access, owner, place, plural, reason

_DRAM_QUEUE, _ON_LINKS = QUEUES.index("DRAM queue"), [QUEUES.index(name) for name in ON_LINKS]


def whereabouts(tile: Tile) -> Iterator[str]:
    """List where they are, in an update's order: models' queues, arbiters, coalescers, the way to the Tracker."""
    yield from _in_queues(tile)
    yield from _at_arbiters(tile)
    yield from _on_the_way_to_the_tracker(tile)
    yield from _refused(tile)


def _in_queues(tile: Tile) -> Iterator[str]:
    """List what was in the models' queues when the recording ended.

    A write in a DRAM queue has been counted already.
    """
    e = tile.trace.events
    waiting = e[(e["kind"] == Kind.WAITING) & ((e["b"] != _DRAM_QUEUE) | (e["op"] == READ))]
    mine = waiting[(waiting["wg"] == tile.wg) & (waiting["wf"] == tile.wf)]
    flying = np.isin(mine["b"], _ON_LINKS)
    mine = mine[np.where(flying, mine["c"] == tile.number, mine["device"] == tile.device)]
    for device, queue in np.unique(mine[["device", "b"]]):
        here = mine[(mine["device"] == device) & (mine["b"] == queue)]
        units, counts = np.unique(here["unit"], return_counts=True)
        last = here[here["unit"] == units[np.argmax(counts)]]
        ahead = waiting[(waiting["device"] == device) & (waiting["b"] == queue) & (waiting["unit"] == last["unit"][0])
                        & (waiting["a"] < last["a"].min())]
        what = "channels" if QUEUES[queue] in CHANNEL_QUEUES else "links"
        most = f" of {len(units)} {what}, {len(last)} of them in the" if len(units) > 1 else " in the"
        behind = f", {plural(len(ahead), 'other')} before it, the first {access(ahead[0])}" if len(ahead) else ""
        end = "to" if QUEUES[queue] == ON_LINKS[1] else "of"
        yield (f"At the end {plural(len(here), 'request')} of it ({int(here['amount'].sum()):,} bytes) waited{most} "
               f"{place(last[0])} {end} device {tile.trace.run['numbers'][device]}{behind}.")


def _at_arbiters(tile: Tile) -> Iterator[str]:
    """List what has entered a channel's front end and was not granted."""
    writes = tile.events[tile.events["op"] != READ]
    entered = writes[writes["kind"] == Kind.ENTER]
    granted = _granted(writes)
    e = tile.trace.events
    decisions = e[(e["kind"] == Kind.DECIDE) & (e["device"] == tile.device)]
    for channel in np.unique(entered["unit"]):
        held = int((entered["unit"] == channel).sum() - (granted["unit"] == channel).sum())
        if held > 0:
            last = decisions[decisions["unit"] == channel]
            why = f": {reason(last[-1])}" if len(last) else ""
            yield f"{plural(held, 'request')} of it waited at the arbiter of channel {channel}{why}."


def _on_the_way_to_the_tracker(tile: Tile) -> Iterator[str]:
    if any(tile.trace.run["filter"][name] is not None for name in ("kinds", "channels")):
        return
    granted = int(_granted(tile.events[tile.events["op"] != READ])["amount"].sum())
    reported, counted, refused = (
        int(tile.of(kind)["amount"].sum()) for kind in (Kind.REPORT, Kind.UPDATE, Kind.FULL))
    counted += refused
    if granted > reported:
        yield f"{granted - reported:,} bytes were granted and not yet reported: in a coalescer."
    if reported > counted:
        yield (f"{reported - counted:,} bytes were reported and not yet counted: in the update network or a bank's "
               "queue.")


def _refused(tile: Tile) -> Iterator[str]:
    refused = tile.of(Kind.FULL)
    full = refused[refused["a"] != 1]
    if len(full) < len(refused):
        yield (f"{int(refused['amount'][refused['a'] == 1].sum()):,} bytes named a region that is not the tile's: they "
               "were refused.")
    if not len(full):
        return
    replay = Replay(tile.trace, tile.device)
    number = tile.wg % replay.sets
    at = int(full["cycle"][-1])
    held = [owner(e) for e in replay.open_tiles(at) if e["wg"] % replay.sets == number]
    yield (f"{int(full['amount'].sum()):,} bytes of it were refused, the last at cycle {at:,}: set {number} had no "
           "free way" + (f", {', '.join(held)} held them" if held else "") + ".")


def _granted(events: np.ndarray) -> np.ndarray:
    return events[(events["kind"] == Kind.DECIDE) & (events["stream"] != NO_STREAM)]
