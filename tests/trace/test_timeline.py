"""The Perfetto timeline, read back with Perfetto's own messages; its trace processor where that is installed."""

import os
from collections import defaultdict

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from sim_models.trace.schema import Kind
from sim_models.trace.timeline import FILE, flow_of, write_timeline
from tests.trace.recorded import ring


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return ring(tmp_path_factory)


@pytest.fixture(scope="module")
def packets(trace):
    read = PerfettoTrace()
    read.ParseFromString(write_timeline(trace, trace.folder / FILE).read_bytes())
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
    assert {track.process.process_name for track in tracks.values()} >= {f"GPU {d}" for d in range(4)}


def test_an_arrow_leads_from_trigger_to_arrival(packets, tracks):
    """Tile of workgroup 20, wavefront 1 of GPU 1: trigger, engine, link, arrival at GPU 0, in this order."""
    flow = flow_of(1, 20, 1)
    places = [(p.timestamp, tracks[p.track_event.track_uuid]) for p in packets
              if flow in p.track_event.flow_ids or flow in p.track_event.terminating_flow_ids]
    places.sort(key=lambda place: place[0])
    assert [track.name.rstrip(" 01") for _, track in places] == ["triggers", "DMA engine", "link", "arrivals"]
    gpus = [tracks[track.parent_uuid].process.process_name for _, track in places]
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


@pytest.mark.skipif("TRACE_PROCESSOR" not in os.environ,
                    reason="set TRACE_PROCESSOR to Perfetto's trace_processor_shell")
def test_the_trace_processor_agrees(trace, packets):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    with TraceProcessor(trace=str(trace.folder / FILE),
                        config=TraceProcessorConfig(bin_path=os.environ["TRACE_PROCESSOR"])) as processor:
        errors = list(processor.query("select name, value from stats where severity = 'error' and value > 0"))
        assert not errors
        arrows = next(iter(processor.query("select count(*) as n from flow"))).n
        assert arrows >= 3 * len([p for p in packets if p.track_event.terminating_flow_ids])
