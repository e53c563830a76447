"""Geometries under which the testbenches run: small, so that random traffic meets full queues and wrap-arounds."""

from dataclasses import replace

from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, SwitchGeometry, TrackerGeometry

GEOMETRIES = {
    "small": Geometry(
        TrackerGeometry(sets=8, ways=4, banks=2, wg_bits=8, wf_bits=2, address_bits=32, count_bits=10),
        ChannelGeometry(channels=2, guard_buckets=8, queue_entries=12, dma_fifo=2, coalescer_timeout_cycles=4,
                        sample_bits=8),
        DmaGeometry(regions=8, engines=2, ready_commands=4, outstanding_lines=16),
        SwitchGeometry(ports=3, packet_bytes=4, merge_sets=4, merge_ways=2, part_bits=3, buffer_packets=4)),
    #: as small, with four of what small has two of: what reaches only the first is seen, and the last, and a wrong one;
    #: and with few mappings, some of them to several GPUs, and sums of up to four parts that arrive
    "several": Geometry(
        TrackerGeometry(sets=16, ways=2, banks=4, wg_bits=8, wf_bits=2, address_bits=40, count_bits=12),
        ChannelGeometry(channels=4, guard_buckets=8, queue_entries=100, dma_fifo=2, coalescer_timeout_cycles=4,
                        sample_bits=8, more_bits=2),
        DmaGeometry(regions=8, block_shapes=3, buffers=2, routes=5, copies=3, engines=4, ready_commands=8,
                    outstanding_lines=32, egress_lanes=3, peers=3),
        SwitchGeometry(ports=4, packet_bytes=8, merge_sets=8, merge_ways=3, part_bits=4, buffer_packets=9)),
    #: one set of one way, one bank, one channel, one of everything
    "least": Geometry(
        TrackerGeometry(sets=1, ways=1, banks=1, wg_bits=4, wf_bits=1, address_bits=32, count_bits=10),
        ChannelGeometry(channels=1, guard_buckets=1, queue_entries=4, dma_fifo=1, coalescer_timeout_cycles=1,
                        sample_bits=1),
        DmaGeometry(regions=8, block_shapes=1, buffers=1, routes=1, engines=1, ready_commands=2, outstanding_lines=2,
                    egress_lanes=1),
        SwitchGeometry(ports=2, packet_bytes=4, merge_sets=1, merge_ways=1, part_bits=2, buffer_packets=2)),
    "one_way": Geometry(
        TrackerGeometry(sets=16, ways=1, banks=4, wg_bits=8, wf_bits=3, count_bits=16),
        ChannelGeometry(channels=8, guard_buckets=64, queue_entries=64),
        DmaGeometry(regions=8, engines=4, egress_lanes=3, ready_commands=9),
        SwitchGeometry(ports=3, packet_bytes=16, merge_sets=16, merge_ways=1, buffer_packets=6)),
    #: as default, with wide numbers, and channels that are no power of two
    "wide": Geometry(
        TrackerGeometry(sets=32, ways=5, banks=4, wg_bits=24, wf_bits=6, address_bits=64, count_bits=32),
        ChannelGeometry(channels=6, interleave_bytes=4096, queue_entries=127, guard_buckets=256),
        DmaGeometry(device_bits=10),
        SwitchGeometry(ports=5, packet_bytes=32, merge_sets=64, merge_ways=6, part_bits=8, buffer_packets=64)),
    #: as small, with a Tracker that corrects flipped bits
    "protected": Geometry(
        TrackerGeometry(sets=8, ways=4, banks=2, wg_bits=8, wf_bits=2, address_bits=32, count_bits=10,
                        protection="secded"),
        ChannelGeometry(channels=2, guard_buckets=8, queue_entries=12, dma_fifo=2, coalescer_timeout_cycles=4,
                        sample_bits=8),
        DmaGeometry(regions=8, engines=2, ready_commands=4, outstanding_lines=16)),
    "default": Geometry(),
}
#: as several, with channels for two of the blocks that check arrivals, and a queue of commands in memory
GEOMETRIES["grouped"] = replace(GEOMETRIES["several"], channel=replace(GEOMETRIES["several"].channel, channels=8),
                                dma=replace(GEOMETRIES["several"].dma, queue_commands=4))
