"""State of a recorded run: what fired, what has not, and how long communication had to wait."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from t3sim.trace.explain_passes import explain_steps
from t3sim.trace.explain_tile import IDLE
from t3sim.trace.schema import COMPLETE, EXCEEDS, NO_STREAM, REASONS, REFUSED, STREAMS, Kind, Reason, waits_of
from t3sim.trace.store import Trace
from t3sim.trace.tile import miscounts, missed
from t3sim.trace.words import Answer, caveats, owner, plural

_SHOWN = 5  #: tiles of a kind
_REASONS = 3
#: Share of a run's cycles by which GPUs that are alike may differ in their start, which is one, and in their end.
_STARTS_ALIKE, _ENDS_ALIKE = 0.001, 0.05


def explain_run(trace: Trace) -> Answer:
    recorded = trace.run["recorded"]
    answer = Answer(f"{trace.title}: {recorded['outcome']} at cycle {recorded['cycles_of_run']:,}",
                    caveats=list(caveats(trace)), gpus=recorded.get("gpus", []))
    # With what waits where in the table of the GPUs, its line is not told a second time.
    answer.conclude(recorded["problem"].partition(":")[0] if answer.gpus else recorded["problem"])
    answer.conclude(*_late(trace))
    for device in range(trace.devices):
        if trace.passes:
            explain_steps(trace, device, answer)
        else:
            _tiles(trace, device, trace.of(Kind.UPDATE, device), answer)
        _arbiters(trace, trace.of(Kind.DECIDE, device), answer)
    return answer


def _late(trace: Trace) -> Iterator[str]:
    """Say which GPUs' workgroups began later than the others', or which GPU's ended, or its last tile came, last."""
    selection, stages = trace.run["filter"], trace.of(Kind.STAGE)
    if trace.devices == 1 or trace.window[0] or selection["wgs"] is not None or selection["kinds"] is not None:
        return

    def of_each(events: np.ndarray, at: int) -> dict[int, int]:
        cycles = {trace.run["numbers"][device]: events["cycle"][events["device"] == device]
                  for device in range(trace.devices)}
        return {number: int(one[at]) for number, one in cycles.items() if len(one)}
    run, starts = trace.run["recorded"]["cycles_of_run"], of_each(trace.of(Kind.DISPATCH), 0)
    in_time = {number: cycle for number, cycle in starts.items()
               if cycle - min(starts.values()) <= _STARTS_ALIKE * run}
    for number in trace.run["numbers"]:
        if starts and number not in in_time:
            when = f"started at cycle {starts[number]:,}" if number in starts else "has not started"
            yield f"Late: GPU {number}, whose first workgroup {when}, elsewhere by cycle {max(in_time.values()):,}."
    for what, events in (("last workgroup ended", stages[stages["b"] == IDLE]),
                         ("last final tile came", trace.of(Kind.EVENT))):
        ends = of_each(events, -1)
        *_, before, end = sorted(ends.values()) if len(ends) == trace.devices else (0, 0)
        if trace.run["recorded"]["outcome"] == "done" and end - before > _ENDS_ALIKE * run:
            last = next(number for number, cycle in ends.items() if cycle == end)
            yield f"The last: GPU {last}, whose {what} at cycle {end:,}, {end - before:,} cycles after the others'."


def _tiles(trace: Trace, device: int, updates: np.ndarray, answer: Answer) -> None:
    key = updates["wg"].astype(np.int64) << 8 | updates["wf"]
    refused, exceeds = ((updates["flags"] & flag) != 0 for flag in (REFUSED, EXCEEDS))
    fired = np.unique(key[(updates["flags"] & COMPLETE) != 0])
    wrong = dict(zip(key[refused | exceeds].tolist(), updates[refused | exceeds]))
    last = dict(zip(key[~refused].tolist(), updates[~refused]))
    still_open = [tile for tile, e in last.items() if not e["flags"] & (COMPLETE | EXCEEDS)]
    text = (f"GPU {trace.run['numbers'][device]}: {plural(len(fired), 'tile')} fired, {len(still_open)} open "
            f"in the Tracker, {len(wrong)} wrong")
    final = trace.run.get("final_tiles")
    if final:
        text += f"; {final['come'][device]} of {final['expected'][device]} final tiles arrived"
    answer.tell(None, text)
    late: dict[tuple[int, int], np.void] = {}  #: the first of each tile
    for e in missed(updates):
        late.setdefault((int(e["wg"]), int(e["wf"])), e)
    for e in list(late.values())[:_SHOWN]:
        answer.tell(None, f"  {owner(e)}: at its threshold of {e['b']:,} bytes in cycle {int(e['cycle']):,}, and the "
                          "Tracker did not fire")
    miscounted: dict[tuple[int, int], tuple[np.void, str]] = {}
    for e, fault in miscounts(updates):
        miscounted.setdefault((int(e["wg"]), int(e["wf"])), (e, fault))
    for e, fault in list(miscounted.values())[:_SHOWN]:
        answer.tell(None, f"  {owner(e)}: in cycle {int(e['cycle']):,} bank {e['unit']} of the Tracker {fault}")
    for tile in sorted(wrong)[:_SHOWN]:
        e = wrong[tile]
        fault = ("an update was refused, as its region is not tracked"
                 if e["flags"] & REFUSED else f"went past its threshold of {e['b']:,} bytes")
        answer.tell(None, f"  {owner(e)}: {fault} at cycle {int(e['cycle']):,}")
    for tile in sorted(still_open)[:_SHOWN]:
        e = last[tile]
        answer.tell(None, f"  {owner(e)}: {e['a']:,} of {e['b']:,} bytes since cycle {int(e['cycle']):,}")
    if len(still_open) > _SHOWN:
        answer.tell(None, f"  and {len(still_open) - _SHOWN} more")


def _arbiters(trace: Trace, decisions: np.ndarray, answer: Answer) -> None:
    if not len(decisions):
        return
    granted = decisions[decisions["stream"] != NO_STREAM]
    held_up = decisions[(decisions["stream"] == NO_STREAM) & (decisions["reason"] != Reason.IDLE)]
    counts = ", ".join(f"{(granted['stream'] == stream).sum():,} {name}" for stream, name in enumerate(STREAMS))
    answer.tell(None, f"  the arbiters granted {counts} requests")
    for code, count in Counter(held_up["reason"].tolist()).most_common(_REASONS):
        answer.tell(None, f"  {plural(count, 'time')} no request was granted: {REASONS[code]}")
    if trace.run["filter"]["wgs"] is None:
        longest = max(int(waits_of(decisions[decisions["unit"] == channel]).max())
                      for channel in np.unique(decisions["unit"]))
        answer.tell(None, f"  longest that communication waited at an arbiter: {plural(longest, 'cycle')}")
