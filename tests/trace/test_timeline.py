"""The Perfetto timeline, read back with Perfetto's own messages and queried in its own trace processor."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from t3sim.trace.schema import Kind
from t3sim.trace.timeline import flow_of, write_timeline
from tests.support.recorded import ring
from tests.support.trace_processor import TraceProcessor

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return ring(tmp_path_factory)


@pytest.fixture(scope="module")
def packets(trace):
    read = PerfettoTrace()
    read.ParseFromString(write_timeline(trace).read_bytes())
    return read.packet


@pytest.fixture(scope="module")
def tracks(packets):
    return {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}


def test_slices_nest_and_every_track_is_described(packets, tracks):
    depth, seen = defaultdict(int), defaultdict(list)
    for p in sorted((p for p in packets if p.HasField("track_event")), key=lambda p: p.timestamp):
        assert p.track_event.track_uuid in tracks
        seen[p.track_event.track_uuid].append(p.track_event.type)
    for track, kinds in seen.items():
        for kind in kinds:
            depth[track] += {TrackEvent.TYPE_SLICE_BEGIN: 1, TrackEvent.TYPE_SLICE_END: -1}.get(kind, 0)
        assert depth[track] == 0
    names = {track.name for track in tracks.values()}
    assert {"compute unit 0", "DMA engine 1", "triggers", "link", "DRAM queue of channel 3"} <= names
    assert names >= {f"GPU {d}" for d in range(4)}


def test_an_arrow_leads_from_trigger_to_arrival(packets, tracks):
    """Tile of workgroup 20, wavefront 1 of GPU 1: trigger, engine, link, arrival at GPU 0, in this order."""
    flow = flow_of(1, 20, 1)
    places = [(p.timestamp, tracks[p.track_event.track_uuid]) for p in packets
              if flow in p.track_event.flow_ids or flow in p.track_event.terminating_flow_ids]
    places.sort(key=lambda place: place[0])
    assert [track.name.rstrip(" 01") for _, track in places] == ["triggers", "DMA engine", "link", "arrivals"]
    gpus = [tracks[track.parent_uuid].name for _, track in places]
    assert gpus == ["GPU 1", "GPU 1", "GPU 1", "GPU 0"]


def test_every_dma_command_has_its_arrow(packets, trace):
    ended = {flow for p in packets for flow in p.track_event.terminating_flow_ids}
    e = trace.events[trace.events["kind"] == Kind.ISSUE]
    assert ended == {flow_of(int(c["device"]), c["wg"], c["wf"]) for c in e}


def test_counters_are_what_was_recorded(packets, tracks, trace):
    track = next(uuid for uuid, t in tracks.items() if t.name == "DMA commands waiting")
    values = [p.track_event.counter_value for p in packets if p.track_event.track_uuid == track]
    e = trace.events[(trace.events["device"] == 0) & np.isin(trace.events["kind"], [Kind.READY, Kind.ISSUE])]
    assert len(values) == len(e) and min(values) == values[-1] == 0


@pytest.fixture(scope="module")
def processor(trace):
    return TraceProcessor(write_timeline(trace))


def test_the_trace_processor_takes_all_of_it(processor, trace):
    """No error, no lost data; nothing ends before it begins."""
    assert not processor.query("select name from stats where severity in ('error', 'data_loss') and value > 0")
    assert processor.query("select count(*) as n from slice where dur < 0")[0].n == 0
    events = trace.events[trace.events["kind"] == Kind.ISSUE]
    on_engines = processor.query("select count(*) as n from slice join track on track.id = slice.track_id "
                                 "where track.name like 'DMA engine %'")
    assert on_engines[0].n == len(events)


def test_the_trace_processor_sees_arrows_from_trigger_to_arrival(processor, trace):
    """Of each DMA command: trigger to engine to link to the arrival at the neighbour, which is never earlier."""
    arrows = processor.query(
        "select first.name as begins, second.name as ends, s.ts as at, t.ts as till from flow "
        "join slice s on s.id = flow.slice_out join slice t on t.id = flow.slice_in "
        "join track first on first.id = s.track_id join track second on second.id = t.track_id")
    commands = len(trace.events[trace.events["kind"] == Kind.ISSUE])
    legs = Counter((arrow.begins.rstrip(" 01"), arrow.ends.rstrip(" 01")) for arrow in arrows)
    assert legs == {("triggers", "DMA engine"): commands, ("DMA engine", "link"): commands,
                    ("link", "arrivals"): commands}
    assert all(arrow.till >= arrow.at for arrow in arrows)
    latency = trace.run["link_latency_cycles"]
    assert min(arrow.till - arrow.at for arrow in arrows if arrow.begins == "link") >= latency
