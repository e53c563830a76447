"""Perfetto traces: tracks, slices, instants, counters and arrows. They open in https://ui.perfetto.dev."""

import itertools

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

_SEQUENCE = 1


class TimelineWriter:
    """Writes packets in any order; Perfetto sorts them by time. Times are in units of `unit_ns`."""

    def __init__(self, file, unit_ns: float) -> None:
        self._builder = StreamingTraceProtoBuilder(file)
        self._ns = unit_ns
        self._uuids = itertools.count(1)

    def track(self, name: str, parent: int | None = None, unit: str | None = None) -> int:
        """Make a counter (`unit`) or an ordinary track; the viewer shows them in the order in which they are made."""
        packet = TracePacket()
        described: TrackDescriptor = packet.track_descriptor
        described.uuid = next(self._uuids)
        described.name = name
        described.child_ordering = TrackDescriptor.EXPLICIT
        described.sibling_order_rank = described.uuid
        if parent is not None:
            described.parent_uuid = parent
        if unit is not None:
            described.counter.unit_name = unit
        self._builder.write_packet(packet)
        return described.uuid

    def event(self, time: float, track: int, kind: TrackEvent.Type, name: str = "", value: int | None = None,
              flow: int | None = None, last: bool = False, **notes: int) -> None:
        """Write an event; `flow`: arrow through all events of that number, up to the `last`."""
        packet = TracePacket()
        packet.timestamp = round(time * self._ns)
        packet.trusted_packet_sequence_id = _SEQUENCE
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name = name
        if value is not None:
            event.counter_value = value
        if flow is not None:
            (event.terminating_flow_ids if last else event.flow_ids).append(flow)
        for key, number in notes.items():
            note = event.debug_annotations.add()
            note.name, note.int_value = key, int(number)
        self._builder.write_packet(packet)

    def slice(self, first: float, end: float, track: int, name: str, flow: int | None = None, **notes: int) -> None:
        self.event(first, track, TrackEvent.TYPE_SLICE_BEGIN, name, flow=flow, last=False, **notes)
        self.event(end, track, TrackEvent.TYPE_SLICE_END)

    def instant(self, time: float, track: int, name: str, flow: int | None = None, last: bool = False,
                **notes: int) -> None:
        self.event(time, track, TrackEvent.TYPE_INSTANT, name, flow=flow, last=last, **notes)

    def counter(self, time: float, track: int, value: int) -> None:
        self.event(time, track, TrackEvent.TYPE_COUNTER, value=value)
