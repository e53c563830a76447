"""The life of a workgroup of a collective alone: what it moves, for whom its step waited, where its data went.

Nothing is simulated here. What a trace does not hold, because of its window or filters, is said and not guessed.
"""

from collections.abc import Iterator

import numpy as np

from t3sim.gpu.setup import STATES
from t3sim.trace.explain_tile import IDLE, STORES
from t3sim.trace.passes import HERE, Arriving, Piece, Span
from t3sim.trace.schema import QUEUES, READ, Kind
from t3sim.trace.store import Trace, inside
from t3sim.trace.words import Answer, caveats, devices, joined, place, plural

_LINK = STATES.index("store_link")
_ALL_SENT = "it has sent all of them."
_SHOWN = 8  #: steps of a device, and what a step waits for


def explain_piece(trace: Trace, wg: int, device: int = 0) -> Answer:
    """Explain what a workgroup did. Raises BadInput if there is none."""
    trace.check_device(device)
    piece = trace.passes.piece(device, wg)
    number = trace.run["numbers"][device]
    answer = Answer(f"GPU {number}, workgroup {wg}: step {piece.step + 1} of {trace.passes.steps(device)}, bytes "
                    f"{piece.first_byte:,} to {piece.first_byte + piece.bytes - 1:,} of each chunk: {_work(piece)}",
                    caveats=list(caveats(trace, wg)))
    began = trace.passes.over(device, piece.step - 1)
    late = began is not None and began >= trace.run["recorded"]["until"]
    if began is not None and not late:
        answer.tell(began, "the collective begins on this GPU" if not piece.step else
                    f"step {piece.step} is over on this GPU, and step {piece.step + 1} begins")
    mine = trace.of(None, device)
    events = mine[mine["wg"] == wg]
    started, stages = events[events["kind"] == Kind.DISPATCH], events[events["kind"] == Kind.STAGE]
    for e in started:
        answer.tell(e["cycle"], f"the workgroup starts on compute unit {e['unit'] % trace.run['geometry']['units']}")
    for e in stages[np.isin(stages["b"], STORES)][:1]:
        answer.tell(e["cycle"], "all that it reads is there: its stores begin")
    ended = stages[stages["b"] == IDLE]
    for e in ended:
        answer.tell(e["cycle"], "the workgroup has ended")
    if not len(events):
        answer.conclude(_not_started(trace, piece, began, late))
    last = int(ended["cycle"][0]) if len(ended) else trace.window[1]
    _reads(trace, piece, int(started["cycle"][0]) if len(started) else trace.window[0], last, answer)
    _stored(trace, piece, answer)
    if piece.step and began is None:
        before = next(step for step in range(piece.step) if trace.passes.over(device, step) is None)
        answer.conclude(*_waiting_for(trace, device, before))
    elif piece.step:
        answer.conclude(*(f"Step {piece.step} {line}." for line in _waited(trace, device, piece.step - 1)))
    _origins(trace, piece, answer)
    _on_links(trace, piece, stages, answer)
    if trace.run["mirrored"]:
        answer.caveats.append("Only a representative GPU was simulated: arrivals are what another GPU would send at "
                              "that moment. Record with gpus.every = true to follow each packet.")
    return answer.in_order()


def _not_started(trace: Trace, piece: Piece, began: int | None, late: bool) -> str:
    """Say why the recording has nothing of a workgroup."""
    if began is None:
        return "It has not started: its step has not begun on this GPU."
    if late:
        return f"It has not started: the collective begins on this GPU at cycle {began:,}."
    if not _from_the_start(trace, Kind.DISPATCH) or not _from_the_start(trace, Kind.STAGE):
        return "Its work is not in the recording."
    before = piece.number - trace.passes.of_step(piece.device, piece.step)[0]
    return f"It has not started: {plural(before, 'workgroup')} of its step came before it."


def explain_steps(trace: Trace, device: int, answer: Answer) -> None:
    """Explain how far a device has come, and for whom each step waited last."""
    passes, number = trace.passes, trace.run["numbers"][device]
    steps = range(passes.steps(device))
    over = [step for step in steps if passes.over(device, step) is not None]
    answer.tell(None, f"GPU {number}: {len(over)} of {plural(len(steps), 'step')} over")
    took = {step: passes.over(device, step) - passes.over(device, step - 1) for step in over}
    for step in (shown := sorted(sorted(over, key=lambda step: -took[step])[:_SHOWN])):
        until = passes.over(device, step)
        why = "".join(f": {line}" for line in _waited(trace, device, step))
        answer.tell(None, f"  step {step + 1}, cycles {until - took[step]:,} to {until:,}{why}")
    if len(over) > len(shown):
        answer.tell(None, f"  and {len(over) - len(shown)} that took no longer")
    if len(over) < len(steps):
        began = passes.over(device, len(over) - 1)
        when = "from" if began >= trace.run["recorded"]["until"] else "since"
        answer.tell(None, f"  step {len(over) + 1}, {when} cycle {began:,} on")
        for line in _waiting_for(trace, device, len(over)):
            answer.tell(None, f"    {line}")


def _work(piece: Piece) -> str:
    """Say what a workgroup does: `adds what came from device 2 to chunk 3 and sends it to device 0`."""
    receivers: dict[tuple, list[int]] = {}
    for move in piece.passes:
        origins = tuple(source.origin for source in move.sources)
        receivers.setdefault((move.chunk, origins), []).append(move.to)
    texts = []
    for (chunk, (first, *others)), to in receivers.items():
        peers = sorted(number for number in to if number != HERE)
        verbs = " and ".join((["keeps"] if HERE in to else []) + (["sends"] if peers else []))
        where = f" to {devices(peers)}" if peers else ""
        origin = f", which came from GPU {first}," if first != HERE else ""
        texts.append(f"adds to chunk {chunk} what came from {devices(sorted(others))}, {verbs} it{where}" if others else
                     f"{verbs} chunk {chunk}{origin}{where}")
    return "; ".join(texts)


def _reads(trace: Trace, piece: Piece, first: int, last: int, answer: Answer) -> None:
    """Tell what of its data DRAM has read; in the time of its step nobody else reads them."""
    served = trace.of(Kind.SERVE, piece.device, [span for span, _ in trace.passes.reads(piece)])
    read = served[(served["op"] == READ) & (served["cycle"] >= first) & (served["cycle"] <= last)]
    answer.tell_all(read, f"{plural(len(read), 'line')} read from DRAM")


def _stored(trace: Trace, piece: Piece, answer: Answer) -> None:
    """Follow what it stores, here and at its peers."""
    short, copied = [], set()
    for span, move in trace.passes.stores(piece):
        served, to = trace.of(Kind.SERVE, span.device, [span]), move.to
        stored = served[served["op"] != READ]
        if to == HERE:
            where = "here"
        else:
            where = f"at GPU {to}" if not trace.run["mirrored"] else "here, where it stands for another's"
            arrivals = trace.of(Kind.ARRIVE, span.device, [span])
            if not move.copied:
                _left(trace, piece, to, span, f"GPU {to}", answer)
            elif move.copied.address not in copied:
                copied.add(move.copied.address)
                first = move.copied.address + piece.first_byte
                _left(trace, piece, move.copied.to, Span(span.device, first, first + piece.bytes),
                      "the switch, which copies them", answer)
            answer.tell_all(arrivals, f"{plural(len(arrivals), 'packet')} arrived {where}")
        if len(stored):
            answer.tell(stored["cycle"][-1], f"{int(stored['amount'].sum()):,} bytes are in DRAM {where}")
        if int(stored["amount"].sum()) < piece.bytes:
            short.append(f"{int(stored['amount'].sum()):,} of {piece.bytes:,} bytes are in DRAM {where}.")
            short += _waiting(trace, span)
    complete = trace.run["filter"]["kinds"] is None and trace.run["filter"]["channels"] is None
    if complete and trace.window[0] == 0:
        answer.conclude(*(short or [f"All that it stores is in DRAM: {piece.bytes * len(piece.passes):,} bytes."]))


def _left(trace: Trace, piece: Piece, to: int, span: Span, where: str, answer: Answer) -> None:
    """Tell what of it went onto a link."""
    packets = _packets(trace, piece.device, to, [span])
    answer.tell_all(packets, f"{plural(len(packets), 'packet')} ({int(packets['amount'].sum()):,} bytes) onto the "
                             f"link to {where}")


def _origins(trace: Trace, piece: Piece, answer: Answer) -> None:
    """Say which workgroups had sent what it reads, and who reads what it stores."""
    arrivals = []
    for span, origin in trace.passes.reads(piece):
        (sender, number), = trace.passes.stored_by(span.device, np.array([span.first]))
        if origin != HERE and number >= 0:
            arrivals.append(f"GPU {origin}" + (f", workgroup {number} there" if not trace.run["mirrored"] else
                                                  f", as workgroup {number} sends it"))
    if arrivals:
        answer.conclude(f"What it reads came from {joined(arrivals)}.")
    for span, move in trace.passes.stores(piece):
        for group in trace.passes.readers(span, piece.step):
            numbers = (f"workgroup {group[0]}" if len(group) == 1 else f"workgroups {group[0]} to {group[-1]}")
            where = "here" if move.to == HERE or trace.run["mirrored"] else f"on GPU {move.to}"
            answer.conclude(f"{numbers.capitalize()} read{'s' if len(group) == 1 else ''} it {where}.")


def _waited(trace: Trace, device: int, step: int) -> Iterator[str]:
    """Say for whom a step that is over waited last; nothing where the recording cannot tell."""
    if not (_from_the_start(trace, Kind.ARRIVE) and _from_the_start(trace, Kind.STAGE)):
        return
    passes, came = trace.passes, trace.of(Kind.ARRIVE, device)
    ended = int(_ends(trace, device, step)["cycle"].max())
    lines = passes.lines_of_step(device, step)
    if not lines:
        yield f"waited for its own workgroups only, which had ended at cycle {ended:,}"
        return
    last = int(np.searchsorted(np.cumsum(_parts(came)), passes.lines(device, step)))
    last = came[last:last + 1]
    at, (_, wg) = int(last["cycle"][0]), passes.stored_by(device, last["address"])[0]
    senders = sorted(part.number for part in passes.arriving(device)
                     if part.span.first <= int(last["address"][0]) < part.span.end)
    senders, there = devices(senders) if senders else "others", "there" if len(senders) < 2 else "on each"
    if at < ended:
        yield (f"waited last for its own workgroups, which ended at cycle {ended:,}; the last of {lines:,} lines had "
               f"come at cycle {at:,}")
        return
    sender = "" if trace.run["mirrored"] else f", from workgroup {wg} {there}"
    yield (f"waited last for {senders}: the last of {lines:,} lines came at cycle {at:,}{sender}; its own workgroups "
           f"had ended at cycle {ended:,}")


def _ends(trace: Trace, device: int, step: int) -> np.ndarray:
    stages, group = trace.of(Kind.STAGE, device), trace.passes.of_step(device, step)
    return stages[(stages["b"] == IDLE) & (stages["wg"] >= group[0]) & (stages["wg"] <= group[-1])]


def _waiting_for(trace: Trace, device: int, step: int) -> Iterator[str]:
    """Say what a step that is not over still waits for."""
    if not (_from_the_start(trace, Kind.ARRIVE) and _from_the_start(trace, Kind.STAGE)):
        return
    group, ended = trace.passes.of_step(device, step), len(_ends(trace, device, step))
    if ended < len(group):
        yield f"{ended:,} of {len(group):,} workgroups of step {step + 1} have ended on this GPU."
    yield from _missing(trace, device, step)


def _missing(trace: Trace, device: int, step: int) -> Iterator[str]:
    """Say which lines have not come, and who has not sent them."""
    passes, arrived = trace.passes, trace.of(Kind.ARRIVE, device)
    needed = passes.lines(device, step)
    arrived_parts = int(_parts(arrived).sum())
    if arrived_parts >= needed:
        return
    lines = passes.lines_of_step(device, step)
    yield f"{max(0, arrived_parts - needed + lines):,} of {lines:,} lines that step {step + 1} waits for have come."
    short: dict[Span, list[Arriving]] = {}
    for part in passes.arriving(device):
        if part.step <= step:
            short.setdefault(part.span, []).append(part)
    counts = {span: len(parts) * passes.chunk_lines - int(_parts(inside(arrived, [span])).sum())
              for span, parts in short.items()}
    short = {span: parts for span, parts in short.items() if counts[span] > 0}
    for span, parts in list(short.items())[:_SHOWN]:  # several where a switch adds them
        yield (f"{counts[span]:,} of {len(parts) * passes.chunk_lines:,} lines of chunk {parts[0].chunk} from "
               f"{devices(sorted(part.number for part in parts))} are missing{_senders(trace, device, parts)}")
    if len(short) > _SHOWN:
        yield f"So are lines of {len(short) - _SHOWN} more."


def _senders(trace: Trace, device: int, parts: list[Arriving]) -> str:
    """Say why lines that one device sends, or sums of what several send, have not come."""
    if len(parts) == 1:
        return f": {_sender(trace, device, parts[0])}"
    why = {part.number: _sender(trace, device, part) for part in parts}
    late = [f"; GPU {number}: {said[:-1]}" for number, said in why.items() if said != _ALL_SENT]
    return "".join(late) + "." if late else ": all have sent their parts."


def _sender(trace: Trace, device: int, part: Arriving) -> str:
    passes = trace.passes
    if not _from_the_start(trace, Kind.PACKET):
        return "what it has sent is not recorded."
    packets = _packets(trace, part.sender, None if trace.run["mirrored"] else part.sent_to,
                       [Span(device, part.sent_at, part.sent_at + part.span.end - part.span.first)])
    if len(packets) >= passes.chunk_lines:
        return _ALL_SENT
    at_receiver = packets["address"].astype(np.int64) - part.sent_at + part.span.first
    done = np.unique(passes.stored_by(device, at_receiver, part.sender)[:, 1]) if len(packets) else []
    first = next((wg for wg in passes.of_step(part.sender, part.step) if wg not in done), None)
    begun = passes.over(part.sender, part.step - 1) is not None
    return (f"there step {part.step + 1} has not begun." if not begun else
            f"there workgroup {first} of step {part.step + 1} has sent nothing." if first is not None else
            "there some workgroups have sent a part.")


def _waiting(trace: Trace, span: Span) -> Iterator[str]:
    """Say in which queues requests for these addresses were when the recording ended."""
    waiting = trace.of(Kind.WAITING, spans=[span])
    waiting = waiting[waiting["op"] != READ]
    number = trace.run["numbers"][span.device]
    on_links = waiting["c"] >= 0
    is_here = np.where(on_links, (waiting["c"] == number) | trace.run["mirrored"], waiting["device"] == span.device)
    waiting_here = waiting[is_here]
    for queue in np.unique(waiting_here["b"]):
        here = waiting_here[waiting_here["b"] == queue]
        what = "to" if here["c"][0] >= 0 else "of"
        yield (f"At the end {plural(len(here), 'request')} of it waited in the "
               f"{place(here[0]) if len(np.unique(here['unit'])) == 1 else QUEUES[queue] + 's'} {what} GPU "
               f"{number}.")


def _on_links(trace: Trace, piece: Piece, stages: np.ndarray, answer: Answer) -> None:
    """Say for how long a workgroup's stores waited for room on a link."""
    refused = stages[stages["b"] == _LINK]
    packets = _packets(trace, piece.device, None,
                       [span for span, move in trace.passes.stores(piece) if move.to != HERE])
    if len(refused) and len(packets):
        waited = int(packets["cycle"][-1]) - int(refused["cycle"][0])
        answer.conclude(f"Its stores waited {plural(waited, 'cycle')} for room on a link, from cycle "
                        f"{int(refused['cycle'][0]):,} on.")


def _parts(arrived: np.ndarray) -> np.ndarray:
    """Return for how many lines each packet counts that has come: a sum for one of each part."""
    return np.maximum(1, arrived["c"])


def _packets(trace: Trace, device: int, to: int | None, spans: list[Span]) -> np.ndarray:
    """Return the packets of these addresses that a device put onto its links for another one, None: for any."""
    packets = trace.of(Kind.PACKET, device, spans)
    return packets if to is None else packets[packets["a"] == to]


def _from_the_start(trace: Trace, kind: Kind) -> bool:
    """Say whether all events of a kind up to the end of the recording are there."""
    selection = trace.run["filter"]
    return (trace.window[0] == 0 and (selection["kinds"] is None or kind.name.lower() in selection["kinds"])
            and selection["channels"] is None and selection["wgs"] is None)
