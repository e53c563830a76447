"""UpdateNetwork: right bank, order per channel and workgroup, nothing lost, throughput, no starvation."""

import random

import pytest

from t3sim.rtl.geometry import ChannelGeometry, Geometry, TrackerGeometry
from t3sim.rtl.track.update_network import UpdateNetwork
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.update_network import UpdateNetworkModel
from tests.support.stream_bench import StreamBench, once, send
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


def network(channels, banks, seed):
    geometry = Geometry(tracker=TrackerGeometry(sets=max(2, banks), banks=banks),
                        channel=ChannelGeometry(channels=channels))
    dut = once(UpdateNetwork, geometry)
    return geometry, dut, StreamBench(dut, seed)


def item(channel, n, wg):
    return Update(address=n, amount=channel + 1, source=n % 3, region=n % 16, wf=n % 8, wg=wg)._asdict()


@pytest.mark.parametrize("channels, banks", on_one([(1, 1), (1, 4), (2, 1), (4, 2), (8, 8), (32, 8), (16, 16)], (4, 2)))
@pytest.mark.parametrize("idle_in, idle_out", [(0.0, 0.0), (0.3, 0.6)])
def test_every_update_once_at_its_bank_and_in_order(channels, banks, idle_in, idle_out):
    """1 to 32 channels, 1 to 8 banks; in order per channel."""
    geometry, dut, bench = network(channels, banks, seed=channels * banks)
    model, each = UpdateNetworkModel(geometry), max(8, 200 // channels)
    rng = bench.random
    for channel in range(channels):
        items = [item(channel, n, rng.getrandbits(16)) for n in range(each)]
        bench.source(dut.updates[channel], items, idle_in,
                     on_transfer=lambda sent, channel=channel: model.accepted(channel, Update(**sent)))
    sinks = [bench.sink(port, idle_out) for port in dut.banks]
    bench.run(until=lambda: sum(map(len, sinks)) == channels * each, cycles=4000, settle=4)
    for bank, taken in enumerate(sinks):
        for update in taken:
            assert model.delivered(bank, Update(**update)) == update["amount"] - 1
    assert model.inside == 0


def test_one_update_per_cycle_and_bank():
    """All channels are full and banks are spread: every bank gets one update per cycle."""
    _, dut, bench = network(32, 8, seed=5)
    for channel in range(32):
        # Each group of four always has the same bank at its head: no conflicts at the crossbar.
        bench.source(dut.updates[channel], [item(channel, n, 8 * n + channel // 4) for n in range(10)])
    sinks = [bench.sink(port) for port in dut.banks]
    bench.run(until=lambda: sum(map(len, sinks)) == 320, cycles=40 + 4)


def test_one_hot_bank_serves_all_groups_alike():
    """All channels send to one bank and get equal shares."""
    _, dut, bench = network(16, 4, seed=6)
    for channel in range(16):
        bench.source(dut.updates[channel], [item(channel, n, 4 * n + 3) for n in range(10)])
    sinks = [bench.sink(port) for port in dut.banks]
    bench.run(until=lambda: len(sinks[3]) == 160, cycles=160 + 4)
    for start in range(16, 144, 16):
        served = [update["amount"] for update in sinks[3][start:start + 16]]
        assert len(set(served)) == 16, "a channel was served twice before another"


def test_a_blocked_bank_does_not_block_other_groups():
    """One bank is never ready; updates of other groups go on."""
    _, dut, bench = network(8, 2, seed=7)
    bench.source(dut.updates[0], [item(0, n, 0) for n in range(4)])
    bench.source(dut.updates[4], [item(4, n, 1) for n in range(50)])
    taken = bench.sink(dut.banks[1])
    bench.run(until=lambda: len(taken) == 50, cycles=60)


def test_reset_in_flight():
    """A reset under traffic: empty, then as new."""
    _, dut, bench = network(8, 2, seed=8)
    rng = random.Random(8)

    async def drive(ctx):
        await send(ctx, dut.updates[0], [item(0, n, n) for n in range(4)], rng)
        assert ctx.get(dut.busy)
        await bench.pulse_reset(ctx)
        assert not ctx.get(dut.busy)
        for taken in sinks:
            taken.clear()
        await send(ctx, dut.updates[7], [item(7, 9, 1)], rng)

    sinks = [bench.sink(port, idle=0.99) for port in dut.banks]
    bench.process(drive, background=False)
    bench.run(until=lambda: sinks[1], cycles=2000, settle=10)
    assert sinks[1] == [item(7, 9, 1)] and not sinks[0]
