"""One GPU that stands for all: a tile is followed to the ring position that its lines become."""

import re

import pytest

from t3sim.trace.explain_tile import explain_tile
from t3sim.trace.output_map import TileId
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import COMPLETE, Kind
from t3sim.trace.timeline import write_timeline
from tests.support.recorded import make
from tests.support.trace_processor import TraceProcessor

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

END = 8_000  #: while tiles still wait


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return make(tmp_path_factory.mktemp("mirrored"), wanted=Filter(end=END), mirrored=True)


def tiles(trace, position: int) -> list[TileId]:
    run = trace.run
    every = (TileId(0, wg, wf) for wg in range(run["names"]) for wf in range(run["wavefronts"]))
    return [tile for tile in every if trace.map.place(tile).position == position]


def test_what_one_position_sends_is_what_the_next_receives(trace):
    for position in range(trace.run["devices"] - 1):
        senders, receivers = tiles(trace, position), tiles(trace, position + 1)
        fed = {(sender, receiver) for sender in senders for receiver in trace.map.feeds(sender)}
        assert fed == {(sender, receiver) for receiver in receivers for sender in trace.map.fed_by(receiver)}
        assert {sender for sender, _ in fed} == set(senders) and {receiver for _, receiver in fed} == set(receivers)
    assert not trace.map.fed_by(tiles(trace, 0)[0]) and not trace.map.feeds(tiles(trace, trace.run["devices"] - 1)[0])


def test_every_arrival_is_of_a_tile_that_is_fed(trace):
    """Packets are known by the sender's addresses, arrivals by the receiver's."""
    e = trace.events
    sent = {TileId(0, trace.map.sender(0, p), int(p["wf"])) for p in e[e["kind"] == Kind.PACKET]}
    fed = {(tile.wg, tile.wf) for sender in sent for tile in trace.map.feeds(sender)}
    arrived = {(int(a["wg"]), int(a["wf"])) for a in e[e["kind"] == Kind.ARRIVE]}
    assert len(arrived) > 10 and arrived <= fed


def test_a_journey_and_a_wait_are_told(trace):
    updates = trace.events[trace.events["kind"] == Kind.UPDATE]
    fired = {(int(u["wg"]), int(u["wf"])) for u in updates[updates["flags"] & COMPLETE != 0]}
    sender = next(tile for tile in tiles(trace, 1) if (tile.wg, tile.wf) in fired)
    answer = explain_tile(trace, sender.wg, sender.wf)
    told = " ".join(text for _, text in answer.steps)
    fed = trace.map.feeds(sender)[0]
    assert f"arrived for GPU 0's workgroup {fed.wg}, wavefront {fed.wf}" in told and "counted there" in told
    counted = {TileId(0, int(u["wg"]), int(u["wf"])) for u in updates}
    waiting = next(tile for tile in sorted(counted) if (tile.wg, tile.wf) not in fired and trace.map.fed_by(tile))
    answer = explain_tile(trace, waiting.wg, waiting.wf)
    missing = next(line for line in answer.verdict if "for which this GPU stands too" in line)
    wg, wf = re.search(r"t3 explain --wg (\d+) --wf (\d+)", missing).groups()
    assert TileId(0, int(wg), int(wf)) in trace.map.fed_by(waiting)


def test_arrows_end_in_arrivals(trace):
    processor = TraceProcessor(write_timeline(trace))
    ends = processor.query("select track.name as name, count(*) as n from flow join slice on slice.id = flow.slice_in "
                           "join track on track.id = slice.track_id group by track.name")
    assert {row.name: row.n for row in ends}["arrivals"] > 10
