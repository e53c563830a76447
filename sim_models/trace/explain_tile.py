"""The life of a wavefront tile: why it fired, or what it still waits for and where that is.

Nothing is simulated here. What a trace does not hold, because of its window or filters, is said and not guessed.
"""

from collections.abc import Iterator

import numpy as np

from t3sim.gpu.setup import STATES
from t3sim.trace.output_map import TileId
from t3sim.trace.schema import ALLOCATED, ALONE, COMPLETE, EXCEEDS, READ, REFUSED, SOURCES, TRIGGERS_GO, Kind
from t3sim.trace.store import Trace
from t3sim.trace.tile import Tile
from t3sim.trace.words import (
    Answer,
    caveats,
    devices,
    extent,
    joined,
    origin,
    others_of,
    plural,
    receivers,
    role,
    state,
    whereabouts,
)

LOCAL = SOURCES.index("local")
STORES = [STATES.index(name) for name in ("store_memory", "store_link")]
IDLE = STATES.index("idle")


def explain_tile(trace: Trace, wg: int, wf: int, device: int = 0) -> Answer:
    """Explain what happened to a tile, or to a workgroup whose inputs are tiles. Raises BadInput if there is none."""
    tile = Tile(trace, wg, wf, device)
    answer = Answer(f"{_device(trace, device)}, workgroup {wg}, wavefront {wf}", caveats=list(caveats(trace, wg)))
    if tile.consumer:
        explain_consumer(tile, answer)
        return answer.in_order()
    if tile.empty:
        answer.conclude("The tile has no columns: its id keeps a place in the order, and nothing is sent or tracked.")
        return answer
    if tile.place:
        array = "output" if trace.run["group_tiles"] is None else "inputs"
        answer.subject += f": {role(tile)}, {extent(tile.place)} of the {array}, at {tile.place.base:#x}"
    if tile.place and not tile.place.columns:
        answer.conclude("The wavefront has no columns of this ragged tile: there is nothing to track.")
        return answer
    workgroup(tile, answer)
    if tile.role == "local":
        how = "in memory from the start" if tile.before else "as this GPU makes it"
        answer.conclude(f"It stays here, {how}: nothing is tracked, nothing fires.")
    elif tile.role == "remote":
        _stores_for_the_link(tile, answer)
    else:
        _tracked(tile, answer)
    return answer.in_order()


def workgroup(tile: Tile, answer: Answer) -> None:
    """Tell when the workgroups of a tile start, store and end."""
    where = "downstream" if tile.trace.run.get("around_a_ring") else "at the peer that is furthest behind"
    for e in tile.of(Kind.BLOCKED):
        answer.tell(e["cycle"], f"the dispatch window holds the workgroup{_part(e)} back "
                                f"(window heads: {e['a']} here, {e['b']} {where})")
    for e in tile.of(Kind.DISPATCH):
        answer.tell(e["cycle"], f"the workgroup{_part(e)} starts" + (
            f" on compute unit {e['unit']}" if e["a"] >= 0 else ""))
    stages = tile.of(Kind.STAGE)
    stores = stages[np.isin(stages["b"], STORES)]
    for part in np.unique(stores["c"]):
        e = stores[stores["c"] == part][0]
        whose = "its" if part == ALONE else f"part {part}'s"
        answer.tell(e["cycle"], f"{whose} K loop is done: the tile's stores begin")
    for e in stages[stages["b"] == IDLE]:
        answer.tell(e["cycle"], f"the workgroup{_part(e)} has ended")


def _part(e) -> str:
    return "" if e["c"] == ALONE else f" of part {e['c']}"


def explain_consumer(tile: Tile, answer: Answer) -> None:
    """Explain the start of a workgroup that waits for input tiles, or whose columns have several owners."""
    trace, consumer = tile.trace, tile.consumer
    gathers = trace.run["group_tiles"] is not None
    which = "starts when its inputs have come, makes" if gathers else "stores columns at several owners, makes"
    answer.subject = (f"GPU {tile.number}, workgroup {tile.wg}: of the GEMM, {which} "
                      f"rows {consumer.m0} to {consumer.m0 + consumer.rows - 1}, columns {consumer.n0} to "
                      f"{consumer.n0 + consumer.columns - 1} of its output")
    workgroup(tile, answer)
    started = tile.of(Kind.DISPATCH)
    at = f"It started at cycle {int(started['cycle'][0]):,}" if len(started) else "It has not started"
    if not gathers:
        answer.conclude(f"{at}. Each of its columns is an expert's output of a token, and is stored at its owner.")
        return
    if not consumer.waits_for:
        answer.conclude(f"{at}; its inputs are this GPU's own, in memory from the start.")
        return
    tiles = [Tile(trace, wg, wf, tile.device) for wg in consumer.waits_for for wf in range(trace.run["wavefronts"])]
    tiles = [source for source in tiles if source.place.columns]
    updates = trace.of(Kind.UPDATE, tile.device)
    done = {(int(e["wg"]), int(e["wf"])): int(e["cycle"])
            for e in updates[((updates["flags"] & COMPLETE) != 0) & ((updates["flags"] & REFUSED) == 0)]}
    missing = [source for source in tiles if (source.wg, source.wf) not in done]
    first, last = consumer.waits_for[0], consumer.waits_for[-1]
    senders = devices(sorted({number for source in tiles for number in trace.map.from_devices(source.id)}))
    group = f"tiles {first} to {last}" if last > first else f"tile {first}"
    for (wg, wf), cycle in done.items():
        if wg in consumer.waits_for:
            answer.tell(cycle, f"its input tile of workgroup {wg}, wavefront {wf} is complete")
    if missing:
        names = f"workgroup {missing[0].wg}, wavefront {missing[0].wf}"
        answer.conclude(f"{at}: of its inputs, {group} from {senders}, {len(missing)} of {len(tiles)} wavefront tiles "
                        f"have not been seen complete, such as {names}.")
    else:
        latest = max(done[source.wg, source.wf] for source in tiles)
        answer.conclude(f"{at}: of its inputs {group} came last, from {senders}; they were complete at cycle "
                        f"{latest:,}.")


def command(trace: Trace, tile: TileId) -> str:
    """Write the command that explains another tile."""
    device = f" --gpu {tile.device}" if trace.devices > 1 else ""
    return f"t3 explain --wg {tile.wg} --wf {tile.wf}{device} {trace.folder}"


def _device(trace: Trace, index: int) -> str:
    return f"GPU {trace.run['numbers'][index]}"


def _stores_for_the_link(tile: Tile, answer: Answer) -> None:
    packets = tile.packets()
    copies = len({number for number, _ in tile.trace.map.routes(tile.id)}) if not tile.trace.run["in_switch"] else 1
    sent_bytes, whole = int(packets["amount"].sum()), tile.stored_bytes * copies
    left = f"All {whole:,} bytes left." if sent_bytes == whole else f"{sent_bytes:,} of {whole:,} bytes left."
    answer.conclude(f"Its stores leave for {receivers(tile)} as they are made (remote_map): nothing is tracked here, "
                    f"nothing fires. {left}")
    if sent_bytes < whole:
        answer.conclude(*whereabouts(tile))
    _journey(tile, packets, answer)


def _tracked(tile: Tile, answer: Answer) -> None:
    wrong = {step.tobytes(): what for step, what in tile.miscounts}
    for e in tile.of(Kind.UPDATE):
        answer.tell(e["cycle"], _update(tile, e) + (f"; WRONG: it {what}" if (what := wrong.get(e.tobytes())) else ""))
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
    if tile.place and tile.fired:
        _waited(tile, answer)


def _update(tile: Tile, e) -> str:
    flags = int(e["flags"])
    if flags & REFUSED:
        return f"bank {e['unit']} refuses an update of {e['amount']} bytes: region {e['region']} is not tracked"
    text = (f"bank {e['unit']} counts {plural(e['amount'], 'byte')} from {origin(tile, e['source'])}: {e['a']:,} of "
            f"{e['b']:,}")
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
    """Say why a tile fired or which bytes are missing, by its life that fired, else by the last."""
    kinds = tile.trace.run["filter"]["kinds"]
    if kinds is not None and "update" not in kinds:
        answer.conclude("Updates were not recorded, so whether it fired is not known.")
        return
    lives, flags = tile.lives, [int(life["flags"][-1]) for life in tile.lives]
    life = next((number for number, last in enumerate(flags) if last & COMPLETE), len(lives) - 1)
    totals = tile.counted(life) if lives else {}
    amounts = ", ".join(f"{plural(amount, 'byte')} from {origin(tile, SOURCES.index(name))}"
                        for name, amount in totals.items()) or "no update"
    e = lives[life][-1] if lives else None
    for step, what in tile.miscounts[:1]:
        answer.conclude(f"Bank {step['unit']} is at fault, not what was sent: the update of {step['amount']} bytes in "
                        f"cycle {int(step['cycle']):,} does not follow from the one before. The Tracker {what}.")
    if len(tile.missed):
        first = tile.missed[0]
        answer.conclude(f"It was at its threshold of {first['b']:,} bytes in cycle {int(first['cycle']):,}, and the "
                        f"Tracker did not fire: bank {first['unit']} is at fault, not what was sent.")
        over = tile.updates[((tile.updates["flags"] & EXCEEDS) != 0) & (tile.updates["cycle"] > first["cycle"])]
        if len(over):
            answer.conclude(f"That an update in cycle {int(over['cycle'][0]):,} went past the threshold follows from "
                            "it.")
    elif tile.fired and e["a"] != e["b"]:
        answer.conclude(f"It fired at cycle {int(e['cycle']):,} with {e['a']:,} of {e['b']:,} bytes counted "
                        f"({amounts}): the Tracker is at fault, whatever was sent.")
    elif tile.fired:
        answer.conclude(f"It fired at cycle {int(e['cycle']):,}: the update of {e['amount']} bytes from "
                        f"{origin(tile, e['source'])} brought the count to the threshold of {e['b']:,} bytes "
                        f"({amounts}).")
    elif lives and flags[life] & EXCEEDS:
        answer.conclude(f"It went past its threshold, which is an error ({amounts}): more was sent to this tile than "
                        "belongs to it.", *_intruders(tile))
    else:
        _not_fired(tile, totals, amounts, answer)
    if tile.fired and life + 1 < len(lives):
        later = np.concatenate(lives[life + 1:])
        answer.conclude(f"After it fired, from cycle {int(later['cycle'][0]):,} on, {int(later['amount'].sum()):,} "
                        "bytes more were counted under its ids, for another use of them or too many.",
                        *_intruders(tile))
    if len(refused := tile.refused):
        answer.conclude(f"{plural(len(refused), 'update')} of {int(refused['amount'].sum()):,} bytes named a region "
                        "that is not tracked: refused, they changed nothing of this tile.")


def _not_fired(tile: Tile, totals: dict[str, int], amounts: str, answer: Answer) -> None:
    updates = tile.updates
    if not len(updates) and not tile.place:
        answer.conclude("It has not fired: no update of it was counted.", *whereabouts(tile))
        return
    count = int(updates["a"][-1]) if len(updates) else 0
    threshold = int(updates["b"][-1]) if len(updates) else tile.expected_bytes
    answer.conclude(f"It has not fired: {count:,} of {threshold:,} bytes are counted ({amounts}).")
    if not tile.place:
        answer.conclude(*whereabouts(tile))
        return
    if threshold != tile.expected_bytes:
        region = tile.place.region
        answer.conclude(
            f"The hardware's threshold is {threshold:,} bytes, but {plural(region['updates_per_element'], 'update')} "
            f"of a tile of {region['rows']} x {region['columns']} elements are {tile.expected_bytes:,}: region "
            f"{tile.place.number} is programmed wrongly, and tiles that its updates should complete wait for ever.")
    if count < tile.expected_bytes:
        answer.conclude(*_missing(tile, totals), *whereabouts(tile))


def _missing(tile: Tile, totals: dict[str, int]) -> Iterator[str]:
    """List the missing bytes of this GPU's share and of the others', and their senders.

    An update has the source of its last access only, so the two shares are inexact, but their sum is exact.
    """
    trace, missing = tile.trace, tile.expected_bytes - sum(totals.values())
    local = min(missing, tile.own_bytes - totals.get("local", 0))
    if local == 1 and tile.admitted:
        yield "Its own request has not gone through the dispatch window, which is the last byte that it waits for."
    elif local > 0:
        alone = tile.place.stored is None
        yield f"Missing from this GPU: {local:,} bytes. " + (
            _workgroups_now(tile) if alone else f"Several workgroups store its {tile.place.stored} columns.")
    others = missing - max(0, local)
    if others <= 0:
        return
    senders = trace.map.fed_by(tile.id)
    if not senders:
        yield f"Missing from {others_of(tile)}: {others:,} bytes, but no tile of it maps to this one."
        return
    where = (f"{others_of(tile)}, for which this GPU stands too" if trace.run["mirrored"] else
             f"upstream ({_device(trace, senders[0].device)})" if trace.run["around_a_ring"] else others_of(tile))
    tiles = [Tile.of_id(trace, sender) for sender in senders]
    late = [one for one in tiles if trace.run["mirrored"] or len(tiles) == 1 or _sent(one, tile) < _to_send(one)]
    sentences = [_sender(tile, one, len(tiles) > 1) for one in late]
    if done := [one.number for one in tiles if one not in late]:
        sentences.append(f"All that {devices(done)} {'send' if len(done) > 1 else 'sends'} for it has left.")
    yield f"Missing from {where}: {others:,} bytes. " + " ".join(sentences)


def _sent(sender: Tile, tile: Tile) -> int:
    return int(sender.sent_to(tile)["amount"].sum())


def _to_send(sender: Tile) -> int:
    """Return the bytes of a tile that each receiver gets; of stores, all parts of K."""
    return sender.stored_bytes if sender.role == "remote" else sender.bytes


def _workgroups_now(tile: Tile) -> str:
    """Say what the workgroup of a tile does, or those of its parts that have not ended."""
    parts = {part: _workgroup_now(tile, part) for part in (
        range(tile.place.made) if tile.place.made > 1 else (ALONE,))}
    waiting = {part: text for part, text in parts.items() if text != _ENDED} or parts
    return " ".join(f"Part {part}: {text}" if part != ALONE else text for part, text in waiting.items())


_ENDED = "Its workgroup has ended."


def _workgroup_now(tile: Tile, part: int) -> str:
    stages, blocked = (events[events["c"] == part] for events in (tile.of(Kind.STAGE), tile.of(Kind.BLOCKED)))
    if len(stages):
        unit, now, since = stages["unit"][-1], int(stages["b"][-1]), int(stages["cycle"][-1])
        return (_ENDED if now == IDLE else
                f"Its workgroup is on compute unit {unit}, state: {state(now)}, since cycle {since:,}.")
    if len(blocked):
        return "Its workgroup has not started: the dispatch window holds it back."
    if tile.trace.run["filter"]["kinds"] is not None:
        return "Its workgroup's work is not recorded."
    # A window begins with what each compute unit does.
    return ("Its workgroup had ended before the recording began." if tile.counted().get("local") else
            "Its workgroup has not started.")


def _sender(tile: Tile, sender: Tile, several: bool) -> str:
    """Say what has become of a tile that this one waits for; `several`: it waits for more than one."""
    beginning = ("There the tile is" if not several else
                 "What stands for one of theirs is" if tile.trace.run["mirrored"] else
                 f"On GPU {sender.number} the tile is")
    sentence = f"{beginning} workgroup {sender.wg}, wavefront {sender.wf}"
    if not tile.trace.run["mirrored"]:
        sentence += f", which has sent {_sent(sender, tile):,} bytes under this tile's name"
    if sender.role == "remote":
        return f"{sentence}, as stores for the link ({command(tile.trace, sender.id)})."
    return f"{sentence} and has {'' if sender.fired else 'not '}fired ({command(tile.trace, sender.id)})."


def _waited(tile: Tile, answer: Answer) -> None:
    """Say for whom a tile that fired waited last, and when each of the others had sent its part."""
    trace, life = tile.trace, next(life for life in tile.lives if life["flags"][-1] & COMPLETE)
    remaining = []
    for sender in (Tile.of_id(trace, one) for one in trace.map.fed_by(tile.id)):
        packets = sender.sent_to(tile)
        packets = packets[packets["cycle"] <= life["cycle"][-1]]
        if len(packets):
            remaining.append((int((packets["cycle"] + packets["b"]).max()), sender))
    if not remaining:
        return
    ends = life["source"][-1]
    local = life[life["source"] == LOCAL]
    done = "its own request had gone" if tile.own_bytes == tile.admitted else "its own part was counted"
    when = [f"{done} at cycle {int(local['cycle'][-1]):,}"] if len(local) else []
    latest, last = max(remaining, key=lambda one: one[0])
    when += ([f"the last packet that stands for theirs left at cycle {latest:,}"] if trace.run["mirrored"] else
             [f"the last packet of GPU {sender.number} left at cycle {cycle:,}" for cycle, sender in remaining])
    together = trace.run["mirrored"] or trace.run["in_switch"] or len(remaining) == 1
    whom = origin(tile, ends) if ends == LOCAL or together else f"GPU {last.number}"
    answer.conclude(f"It waited last for {whom}: {joined(when)}.")


def _intruders(tile: Tile) -> Iterator[str]:
    """List requests for this tile whose address lies outside it."""
    entered = tile.of(Kind.ENTER)
    writes = entered[entered["op"] != READ]
    outside = writes[~tile.place.holds(writes["address"])] if tile.place else writes[:0]
    if len(outside):
        sources = joined(sorted({origin(tile, s) for s in outside["source"]}))
        yield (f"{plural(len(outside), 'request')} from {sources} carried this tile's ids but addresses "
               f"outside it, such as {int(outside['address'][0]):#x} at cycle {int(outside['cycle'][0]):,}: whoever "
               "sent them has a wrong workgroup offset or address offset.")


def _dma(tile: Tile, answer: Answer) -> None:
    """Find the block's command, which carries the block's lowest wavefront; and where it stands if it is not done."""
    per_block = max(1, tile.place.region["tiles_per_block"]) if tile.place else tile.trace.run["wavefronts"]
    of_workgroup = tile.of_workgroup
    in_block = of_workgroup[of_workgroup["wf"] // per_block == tile.wf // per_block]
    ready, issued, walked = (in_block[in_block["kind"] == kind] for kind in (Kind.READY, Kind.ISSUE, Kind.WALKED))
    for e in ready:
        answer.tell(e["cycle"], f"the DMA block is complete; its command waits behind {plural(e['a'], 'other')}")
    for e in issued:
        answer.tell(e["cycle"], f"engine {e['unit']} takes the command")
    for e in walked:
        answer.tell(e["cycle"], f"engine {e['unit']} has walked to the last line")
    lines, served = tile.of(Kind.LINE), tile.of(Kind.SERVE)
    read = served[served["op"] == READ]
    answer.tell_all(lines, f"{len(lines)} lines asked for")
    answer.tell_all(read, f"{len(read)} lines read from DRAM")
    if tile.trace.run["filter"]["kinds"] is not None or len(walked):
        return
    first = tile.wf // per_block * per_block
    if len(issued):
        answer.conclude(f"Its DMA goes on: engine {issued['unit'][-1]} has asked for {plural(len(lines), 'line')}.")
    elif len(ready):
        answer.conclude(f"Its command waits for a DMA engine since cycle {int(ready['cycle'][-1]):,}, after "
                        f"{plural(ready['a'][-1], 'other')} when it came.")
    elif per_block > 1:
        answer.conclude(f"Its DMA block (wavefronts {first} to {first + per_block - 1}) is not complete yet.")


def _journey(tile: Tile, packets: np.ndarray, answer: Answer) -> None:
    """Follow a tile's packets, and what became of them where they went."""
    if not len(packets):
        return
    trace = tile.trace
    routes = trace.map.routes(tile.id)
    numbers = {device for device, _ in routes}
    for number in dict.fromkeys(packets["a"].tolist()):
        mine, to = packets[packets["a"] == number], trace.map.destinations(tile.device, number)
        named_wg = int(mine["wg"][-1])
        where = f"to GPU {to[0]}, as workgroup {named_wg} there" if number < trace.run["devices"] else (
            f"to the switch, which copies them to GPUs {joined(list(map(str, to)))}, as workgroup {named_wg} on GPU "
            f"{to[0]}")
        answer.tell_all(mine, f"{plural(len(mine), 'packet')} ({int(mine['amount'].sum()):,} bytes) onto the link "
                              f"{where}")
        if not numbers & set(to):
            answer.conclude(f"{plural(len(mine), 'packet')} named GPU {to[0]}, but the tile goes to "
                            f"{joined([f'GPU {device}' for device in sorted(numbers)])}.")
    if trace.run["mirrored"]:
        arrivals = ("its neighbour would send at that moment, its own next ring position's lines"
                    if trace.run["around_a_ring"] else
                    "another GPU would send at that moment, which belongs to another tile")
        answer.caveats.append(f"Only a representative GPU was simulated: arrivals are what {arrivals}. Record with "
                              "gpus.every = true to follow each packet.")
        for target in trace.map.feeds(tile.id):
            _arrival(tile, target, answer)
        return
    for target in trace.map.feeds(tile.id):
        sent_packets = packets[packets["a"] == target.device]
        if not len(sent_packets):  # if a switch copies them, under the right name
            _arrival(tile, target, answer)
            continue
        named_wg = int(sent_packets["wg"][-1])
        _arrival(tile, TileId(target.device, named_wg, tile.wf), answer)
        if target.wg != named_wg:
            answer.conclude(
                f"Sent to the wrong tile: workgroup {named_wg} of {_device(trace, target.device)} computes output tile "
                f"{trace.map.output_tile(target.device, named_wg)}, but this is tile "
                f"{trace.map.output_tile(tile.device, tile.wg)}, which is workgroup {target.wg} there. Region "
                f"{tile.place.number}'s wg_offset is wrong.")


def _arrival(tile: Tile, target: TileId, answer: Answer) -> None:
    target_tile = Tile.of_id(tile.trace, target)
    name = f"{_device(tile.trace, target.device)}'s workgroup {target.wg}, wavefront {target.wf}"
    arrived, updates = target_tile.of(Kind.ARRIVE), target_tile.updates
    remote_updates = updates[updates["source"] != SOURCES.index("local")]
    several = len(tile.trace.map.from_devices(target)) > 1
    whose, of = (f" from {others_of(target_tile)}", "these") if several else ("", "them")
    answer.tell_all(arrived, f"{plural(len(arrived), 'packet')} arrived for {name}{whose}")
    answer.tell_all(remote_updates, f"{int(remote_updates['amount'].sum()):,} bytes of {of} are counted there")
