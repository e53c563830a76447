"""The life of a wavefront tile: why it fired, or what it still waits for and where that is.

Nothing is simulated here. What a trace does not hold, because of its window or filters, is said and not guessed.
"""

from collections.abc import Iterator

import numpy as np

from ..agents.units.state import STATES
from .answer import Answer, caveats
from .output_map import TileId
from .schema import ALLOCATED, COMPLETE, EXCEEDS, READ, REFUSED, SOURCES, TRIGGERS_GO, Kind
from .store import Trace
from .tile import Tile
from .whereabouts import whereabouts
from .words import FROM, joined, plural, state

_STORES = [STATES.index(name) for name in ("store_memory", "store_link")]
_IDLE = STATES.index("idle")


def explain_tile(trace: Trace, wg: int, wf: int, device: int = 0) -> Answer:
    """Explain what happened to a tile. Raises BadInput if the run has no such tile."""
    tile = Tile(trace, wg, wf, device)
    answer = Answer(f"{_device(trace, device)}, workgroup {wg}, wavefront {wf}", caveats=list(caveats(trace, wg)))
    if tile.place:
        answer.subject += _place(tile)
    if tile.place and not tile.place.columns:
        answer.conclude("The wavefront has no columns of this ragged tile: there is nothing to track.")
        return answer
    _workgroup(tile, answer)
    if tile.role == "remote":
        _stores_for_the_link(tile, answer)
    else:
        _tracked(tile, answer)
    return answer.in_order()


def command(trace: Trace, tile: TileId) -> str:
    """Write the command that explains another tile."""
    device = f" --device {tile.device}" if trace.devices > 1 else ""
    return f"t3 explain --wg {tile.wg} --wf {tile.wf}{device} {trace.folder}"


def _device(trace: Trace, index: int) -> str:
    return f"device {trace.run['ring_devices'][index]}"


def _place(tile: Tile) -> str:
    place = tile.place
    return (f": ring position {place.position} of {tile.trace.run['devices']}, rows {place.row} to "
            f"{place.row + place.rows - 1}, columns {place.column} to {place.column + max(place.columns, 1) - 1} of "
            f"the output, at {place.base:#x}")


def _workgroup(tile: Tile, answer: Answer) -> None:
    for e in tile.of(Kind.BLOCKED):
        answer.tell(e["cycle"], "the dispatch window holds the workgroup back "
                                f"(window heads: {e['a']} here, {e['b']} downstream)")
    for e in tile.of(Kind.DISPATCH):
        answer.tell(e["cycle"], "the workgroup starts" + (f" on compute unit {e['unit']}" if e["a"] >= 0 else ""))
    stages = tile.of(Kind.STAGE)
    stores = stages[np.isin(stages["b"], _STORES)]
    if len(stores):
        answer.tell(stores["cycle"][0], "its K loop is done: the tile's stores begin")
    for e in stages[stages["b"] == _IDLE]:
        answer.tell(e["cycle"], "the workgroup has ended")


def _stores_for_the_link(tile: Tile, answer: Answer) -> None:
    packets = tile.packets()
    sent, whole = int(packets["amount"].sum()), tile.bytes
    answer.conclude(
        "Its stores leave for the neighbour as they are made (remote_map): nothing is tracked here, nothing fires. "
        + (f"All {whole:,} bytes left." if sent == whole else f"{sent:,} of {whole:,} bytes left."))
    if sent < whole:
        answer.conclude(*whereabouts(tile))
    _journey(tile, packets, answer)


def _tracked(tile: Tile, answer: Answer) -> None:
    for e in tile.of(Kind.UPDATE):
        answer.tell(e["cycle"], _update(tile, e))
    sets = tile.trace.run["geometry"]["sets"]
    for e in tile.of(Kind.FULL):
        foreign, full = f"region {e['region']} is not one of this tile's", f"set {tile.wg % sets} has no free way"
        why = foreign if e["a"] == 1 else full
        answer.tell(e["cycle"], f"bank {e['unit']} refuses an update of {e['amount']} bytes: {why}")
    for e in tile.of(Kind.TRIGGER):
        answer.tell(e["cycle"], f"the trigger leaves the Tracker, smallest address {int(e['address']):#x}, "
                                f"{TRIGGERS_GO[e['a']]}")
    for e in tile.of(Kind.EVENT):
        answer.tell(e["cycle"], "the event is announced")
    _verdict(tile, answer)
    if tile.role == "dma" and tile.fired:
        _dma(tile, answer)
        if tile.place:
            _journey(tile, tile.packets(), answer)


def _update(tile: Tile, e) -> str:
    flags = int(e["flags"])
    if flags & REFUSED:
        return f"bank {e['unit']} refuses an update of {e['amount']} bytes: region {e['region']} is not tracked"
    text = f"bank {e['unit']} counts {e['amount']} bytes from {FROM[SOURCES[e['source']]]}: {e['a']:,} of {e['b']:,}"
    if flags & ALLOCATED:
        text = f"allocated in way {e['c']} of set {tile.wg % tile.trace.run['geometry']['sets']}: {text}"
    if flags & COMPLETE:
        text += ", complete: it fires"
    elif e["a"] == e["b"]:
        text += ", the threshold, and it does NOT fire"
    if flags & EXCEEDS:
        text += ", ABOVE the threshold: an error, the entry is freed without a trigger"
    return text


def _verdict(tile: Tile, answer: Answer) -> None:
    """Say why a tile fired, or what is missing, of the time that decides: when it fired, else the last."""
    kinds = tile.trace.run["filter"]["kinds"]
    if kinds is not None and "update" not in kinds:
        answer.conclude("Updates were not recorded, so whether it fired is not known.")
        return
    lives, flags = tile.lives, [int(life["flags"][-1]) for life in tile.lives]
    life = next((number for number, last in enumerate(flags) if last & COMPLETE), len(lives) - 1)
    totals = tile.counted(life) if lives else {}
    told = _amounts(totals)
    e = lives[life][-1] if lives else None
    if len(tile.missed):
        _missed(tile, answer)
    elif tile.fired and e["a"] != e["b"]:
        answer.conclude(f"It fired at cycle {int(e['cycle']):,} with {e['a']:,} of {e['b']:,} bytes counted ({told}): "
                        "the Tracker is at fault, whatever was sent.")
    elif tile.fired:
        answer.conclude(f"It fired at cycle {int(e['cycle']):,}: the update of {e['amount']} bytes from "
                        f"{FROM[SOURCES[e['source']]]} brought the count to the threshold of {e['b']:,} bytes "
                        f"({told}).")
    elif lives and flags[life] & EXCEEDS:
        answer.conclude(f"It went past its threshold, which is an error ({told}): more was sent to this tile than "
                        "belongs to it.", *_intruders(tile))
    else:
        _not_fired(tile, totals, told, answer)
    if tile.fired and life + 1 < len(lives):
        later = np.concatenate(lives[life + 1:])
        answer.conclude(f"After it fired, from cycle {int(later['cycle'][0]):,} on, {int(later['amount'].sum()):,} "
                        "bytes more were counted under its ids, for another use of them or too many.",
                        *_intruders(tile))
    if len(refused := tile.refused):
        answer.conclude(f"{plural(len(refused), 'update')} of {int(refused['amount'].sum()):,} bytes named a region "
                        "that is not tracked: refused, they changed nothing of this tile.")


def _amounts(totals: dict[str, int]) -> str:
    return ", ".join(f"{amount:,} bytes from {FROM[name]}" for name, amount in totals.items()) or "no update"


def _missed(tile: Tile, answer: Answer) -> None:
    """Conclude that the Tracker saw the threshold and did not fire; what came later is not to blame."""
    e = tile.missed[0]
    answer.conclude(f"It was at its threshold of {e['b']:,} bytes in cycle {int(e['cycle']):,}, and the Tracker did "
                    f"not fire: bank {e['unit']} is at fault, not what was sent.")
    later = tile.updates
    over = later[((later["flags"] & EXCEEDS) != 0) & (later["cycle"] > e["cycle"])]
    if len(over):
        answer.conclude(f"That an update in cycle {int(over['cycle'][0]):,} went past the threshold follows from it.")


def _not_fired(tile: Tile, totals: dict[str, int], told: str, answer: Answer) -> None:
    updates = tile.updates
    if not len(updates) and not tile.place:
        answer.conclude("It has not fired: no update of it was counted.", *whereabouts(tile))
        return
    count = int(updates["a"][-1]) if len(updates) else 0
    threshold = int(updates["b"][-1]) if len(updates) else tile.wanted_bytes
    answer.conclude(f"It has not fired: {count:,} of {threshold:,} bytes are counted ({told}).")
    if not tile.place:
        answer.conclude(*whereabouts(tile))
        return
    if threshold != tile.wanted_bytes:
        region = tile.place.region
        answer.conclude(
            f"The hardware's threshold is {threshold:,} bytes, but {plural(region['updates_per_element'], 'update')} "
            f"of a tile of {region['rows']} x {region['columns']} elements are {tile.wanted_bytes:,}: region "
            f"{tile.place.number} is programmed wrongly, and tiles that its updates should complete wait for ever.")
    if count < tile.wanted_bytes:
        answer.conclude(*_missing(tile, totals), *whereabouts(tile))


def _missing(tile: Tile, totals: dict[str, int]) -> Iterator[str]:
    """List what has not been counted of the local and the arriving share, and from whom it should come."""
    local = tile.bytes - totals.get("local", 0)
    if local > 0:
        yield f"Missing from this GPU: {local:,} bytes. {_workgroup_now(tile)}"
    upstream = tile.bytes - totals.get("remote", 0) - totals.get("dma", 0)
    if tile.place.region["updates_per_element"] == 1 or upstream <= 0:
        return
    senders = tile.trace.map.fed_by(tile.id)
    if not senders:
        yield f"Missing from upstream: {upstream:,} bytes, but no tile of it maps to this one."
        return
    where = ("upstream, for which this GPU stands too" if tile.trace.run["mirrored"]
             else f"upstream ({_device(tile.trace, senders[0].device)})")
    yield f"Missing from {where}: {upstream:,} bytes. " + " ".join(_sender(tile, sender) for sender in senders)


def _workgroup_now(tile: Tile) -> str:
    stages = tile.of(Kind.STAGE)
    if len(stages):
        unit, now, since = stages["unit"][-1], int(stages["b"][-1]), int(stages["cycle"][-1])
        return ("Its workgroup has ended." if now == _IDLE else
                f"Its workgroup is on compute unit {unit}, state: {state(now)}, since cycle {since:,}.")
    if len(tile.of(Kind.BLOCKED)):
        return "Its workgroup has not started: the dispatch window holds it back."
    if tile.trace.run["filter"]["kinds"] is not None:
        return "What its workgroup does is not recorded."
    # A window begins with what each compute unit does.
    return ("Its workgroup had ended before the recording began." if tile.counted().get("local") else
            "Its workgroup has not started.")


def _sender(tile: Tile, sender_id: TileId) -> str:
    """Say what has become of a tile that this one waits for."""
    sender = Tile.of_id(tile.trace, sender_id)
    told = f"There the tile is workgroup {sender.wg}, wavefront {sender.wf}"
    if not tile.trace.run["mirrored"]:
        e = tile.trace.events
        meant = e[(e["kind"] == Kind.PACKET) & (e["device"] == sender.device) & (e["wg"] == tile.wg)
                  & (e["wf"] == tile.wf)]
        told += f", which has sent {int(meant['amount'].sum()):,} bytes under this tile's name"
    if sender.role == "remote":
        return f"{told}, as stores for the link ({command(tile.trace, sender.id)})."
    return f"{told} and has {'' if sender.fired else 'not '}fired ({command(tile.trace, sender.id)})."


def _intruders(tile: Tile) -> Iterator[str]:
    """List requests for this tile whose address lies outside it."""
    writes = tile.events[(tile.events["kind"] == Kind.ENTER) & (tile.events["op"] != READ)]
    outside = writes[~tile.place.holds(writes["address"])] if tile.place else writes[:0]
    if len(outside):
        sources = joined(sorted({FROM[SOURCES[s]] for s in outside["source"]}))
        yield (f"{plural(len(outside), 'request')} from {sources} carried this tile's ids but addresses "
               f"outside it, such as {int(outside['address'][0]):#x} at cycle {int(outside['cycle'][0]):,}: whoever "
               "sent them has a wrong workgroup offset or address offset.")


def _dma(tile: Tile, answer: Answer) -> None:
    """Find the block's command, which carries the block's lowest wavefront; and where it stands if it is not done."""
    per_block = max(1, tile.place.region["tiles_per_block"]) if tile.place else tile.trace.run["wavefronts"]
    own = tile.of_workgroup
    in_block = own[own["wf"] // per_block == tile.wf // per_block]
    ready, issued, walked = (in_block[in_block["kind"] == kind] for kind in (Kind.READY, Kind.ISSUE, Kind.WALKED))
    for e in ready:
        answer.tell(e["cycle"], f"the DMA block is complete; its command waits behind {plural(e['a'], 'other')}")
    for e in issued:
        answer.tell(e["cycle"], f"engine {e['unit']} takes the command")
    for e in walked:
        answer.tell(e["cycle"], f"engine {e['unit']} has walked to the last line")
    lines = tile.of(Kind.LINE)
    read = tile.events[(tile.events["kind"] == Kind.SERVE) & (tile.events["op"] == READ)]
    for events, text in ((lines, "lines asked for"), (read, "lines read from DRAM")):
        if len(events):
            answer.tell(events["cycle"][-1], f"{len(events)} {text}, the first at cycle {int(events['cycle'][0]):,}")
    if tile.trace.run["filter"]["kinds"] is not None or len(walked):
        return
    first = tile.wf // per_block * per_block
    if len(issued):
        answer.conclude(f"Its DMA goes on: engine {issued['unit'][-1]} has asked for {plural(len(lines), 'line')}.")
    elif len(ready):
        answer.conclude(f"Its command waits for a DMA engine since cycle {int(ready['cycle'][-1]):,}, behind "
                        f"{plural(ready['a'][-1], 'other')} when it came.")
    elif per_block > 1:
        answer.conclude(f"Its DMA block (wavefronts {first} to {first + per_block - 1}) is not complete yet.")


def _journey(tile: Tile, packets: np.ndarray, answer: Answer) -> None:
    """Follow a tile's packets, and what became of them at the neighbour."""
    if not len(packets):
        return
    trace, named = tile.trace, int(packets["wg"][-1])
    answer.tell(packets["cycle"][-1],
                f"{plural(len(packets), 'packet')} ({int(packets['amount'].sum()):,} bytes) onto the link to device "
                f"{packets['a'][-1]}, as workgroup {named} there, the first at cycle {int(packets['cycle'][0]):,}")
    downstream = trace.run["peers"][tile.device]
    wrong = packets[packets["a"] != downstream]
    if len(wrong):
        answer.conclude(f"{plural(len(wrong), 'packet')} named device {wrong['a'][0]}, but the link leads to device "
                        f"{downstream}.")
    if trace.run["mirrored"]:
        answer.caveats.append(
            "One GPU stands for all: what arrives is what its neighbour would send at that moment, its own next ring "
            "position's lines. Record with --every-gpu to follow the very packets.")
        for target in trace.map.feeds(tile.id):
            _arrival(tile, target, answer)
        return
    target = TileId(trace.run["downstream"][tile.device], named, tile.wf)
    _arrival(tile, target, answer)
    for meant in trace.map.feeds(tile.id):
        if meant.wg != named:
            answer.conclude(
                f"Sent to the wrong tile: workgroup {named} of {_device(trace, target.device)} computes output tile "
                f"{trace.map.output_tile(target.device, named)}, but this is tile "
                f"{trace.map.output_tile(tile.device, tile.wg)}, which is workgroup {meant.wg} there. Region "
                f"{tile.place.number}'s wg_offset is wrong.")


def _arrival(tile: Tile, target: TileId, answer: Answer) -> None:
    there = Tile.of_id(tile.trace, target)
    name = f"{_device(tile.trace, target.device)}'s workgroup {target.wg}, wavefront {target.wf}"
    arrived, updates = there.of(Kind.ARRIVE), there.updates
    counted = updates[updates["source"] != SOURCES.index("local")]
    if len(arrived):
        answer.tell(arrived["cycle"][-1], f"{plural(len(arrived), 'packet')} arrived for {name}, the first at cycle "
                                          f"{int(arrived['cycle'][0]):,}")
    if len(counted):
        answer.tell(counted["cycle"][-1], f"{int(counted['amount'].sum()):,} bytes of them are counted there, the "
                                         f"first at cycle {int(counted['cycle'][0]):,}")
