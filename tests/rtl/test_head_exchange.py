"""HeadExchange against its model, what a slow link carries, and what is known in the end."""

import random
from dataclasses import replace

import pytest

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.window.head_exchange import HeadExchange
from t3sim.testbenches.reference.head_exchange import HeadExchangeModel, HeadPacket, Listener
from tests.support.stream_bench import once, simulation
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


def geometry(peers: int) -> Geometry:
    return replace(Geometry(), dma=replace(Geometry().dma, peers=peers, device_bits=4))


def simulate(peers, testbench):
    """Runs `testbench(step, reset)`; `step(**inputs)` is one cycle and returns the outputs as the model's `Shown`."""
    dut = once(HeadExchange, geometry(peers))
    simulated = simulation(dut)

    async def run(ctx):
        async def step(*, head, epoch, number, told, heard, taken, arriving, sender=None):
            for name, value in (("head", head), ("epoch", epoch), ("number", number)):
                ctx.set(getattr(dut, name), value)
            for port, listener in zip(dut.told, told):
                ctx.set(port, listener._asdict())
            for port, device in zip(dut.heard, heard):
                ctx.set(port, device)
            ctx.set(dut.leaving.ready, taken)
            ctx.set(dut.arriving.valid, arriving is not None)
            packet = arriving or HeadPacket(7, 7, 7, 7)
            ctx.set(dut.arriving.payload, packet._asdict() | {"sender": packet.source if sender is None else sender})
            leaving = ctx.get(dut.leaving.payload)
            shown = (HeadPacket(leaving.head, leaving.epoch, leaving.source, leaving.device)
                     if ctx.get(dut.leaving.valid) else None,
                     tuple((ctx.get(h), ctx.get(e)) for h, e in zip(dut.peer_heads, dut.peer_epochs)),
                     bool(ctx.get(dut.busy)), bool(ctx.get(dut.news)),
                     (ctx.get(dut.error.details.address), ctx.get(dut.error.details.wg))
                     if ctx.get(dut.error.valid) else None)
            assert ctx.get(dut.arriving.ready)
            await ctx.tick()
            return shown

        await testbench(step, lambda level: ctx.set(simulated.reset, level))

    simulated.add_testbench(run)
    simulated.run()


@pytest.mark.parametrize("peers", on_one([1, 2, 5, 31], 5))
@pytest.mark.parametrize("link", [0.05, 0.5, 1.0])
def test_random_heads_match_the_model(peers, link, seed):
    """Heads, epochs, listeners, links and resets at random, false heads included, cycle by cycle."""
    rng = random.Random(f"{peers} {link} {seed}")

    def listeners():
        return [Listener(rng.randrange(16), rng.random() < 0.8) for _ in range(peers)]

    async def testbench(step, reset):
        model, head, epoch, told = HeadExchangeModel(geometry(peers)), 0, 0, listeners()
        heard, moves = [rng.randrange(16) for _ in range(peers)], 0.5
        for cycle in range(1500):
            if cycle % 100 == 0:
                moves, epoch = rng.choice((0.0, 0.1, 0.9)), epoch + (rng.random() < 0.3)
                told, heard = rng.choice((told, listeners())), [rng.randrange(16) for _ in range(peers)]
            head = (head + (rng.random() < moves)) % (1 << 15)
            arriving, sender = None, rng.randrange(16)
            if rng.random() < 0.4:
                known_head, known_epoch = rng.choice(model.known)
                arriving = HeadPacket(rng.choice((known_head + rng.randrange(-2, 9), 1 << 16, rng.getrandbits(17), 0))
                                      % (1 << 17), rng.choice((known_epoch, known_epoch, known_epoch + 1, 0,
                                                               rng.getrandbits(8))) % 256,
                                      rng.randrange(16), rng.randrange(16))
                sender = arriving.source if rng.random() < 0.9 else sender
            inputs = {"head": head, "epoch": epoch, "number": 3, "told": told, "heard": heard,
                      "taken": rng.random() < link, "arriving": arriving, "sender": sender}
            again = rng.random() < 0.002
            reset(again)
            shown = model.step(**inputs)
            refused = shown.refused and (shown.refused.head, shown.refused.source)
            assert await step(**inputs) == (*shown[:4], refused), f"cycle {cycle}: {inputs}"
            reached.update({"news": shown.news, "refused": shown.refused is not None}.items())
            if again:
                model = HeadExchangeModel(geometry(peers))

    reached: set = set()
    simulate(peers, testbench)
    assert len(reached) == 4


@pytest.mark.parametrize("peers", [1, 3])
@pytest.mark.parametrize("link", [0.01, 0.3, 1.0])
def test_what_is_known_last_is_the_head(peers, link, seed):
    """Links that take one packet in a hundred: heads at a listener only grow, and the last one arrives."""
    rng = random.Random(f"{peers} {link} {seed}")

    async def testbench(step, reset):
        told, heads = [Listener(5 + peer, 1) for peer in range(peers)], {5 + peer: [0] for peer in range(peers)}
        head = packets = 0
        for cycle in range(4000):
            head += cycle < 2000 and rng.random() < 0.5
            taken = rng.random() < link or cycle > 3000
            packet, _, busy, *_ = await step(head=head, epoch=0, number=1, told=told, heard=[0] * peers, taken=taken,
                                         arriving=None)
            if packet and taken:
                assert heads[packet.device][-1] <= packet.head <= head and packet.source == 1
                heads[packet.device].append(packet.head)
                packets += 1
        assert not busy and {known[-1] for known in heads.values()} == {head}
        assert packets <= 2000 * link * 1.5 + 3 * peers + 10

    simulate(peers, testbench)


def test_a_slow_link_keeps_no_listener_waiting_for_another():
    """Listeners take turns even if the head moves in every cycle."""
    async def testbench(step, reset):
        order = []
        for cycle in range(400):
            taken = cycle % 7 == 0
            packet, *_ = await step(head=cycle, epoch=0, number=0, told=[Listener(d, 1) for d in (9, 4, 6)],
                                      heard=[0] * 3, taken=taken, arriving=None)
            order += [packet.device] if packet and taken else []
        assert len(order) > 50 and all(set(order[i:i + 3]) == {9, 4, 6} for i in range(len(order) - 2))

    simulate(3, testbench)


def test_who_is_not_told_gets_nothing():
    """Only listeners get packets, a new one at once; a head from a stranger is dropped."""
    async def testbench(step, reset):
        for cycle in range(50):
            packet, known, busy, news, refused = await step(
                head=cycle, epoch=cycle % 3, number=0, told=[Listener(2, 0)] * 2, heard=[1, 2], taken=True,
                arriving=HeadPacket(cycle, 1, 3, 0))
            assert packet is None and not busy and known == ((0, 0), (0, 0)) and not news and refused is None

    simulate(2, testbench)


@pytest.mark.parametrize("before, arriving, sender, kept", [
    ((9, 1), (8, 1), 5, False), ((9, 1), (9, 1), 5, True), ((9, 1), (10, 1), 5, True), ((9, 1), (10, 1), 6, False),
    ((9, 1), (1 << 16, 1), 5, True), ((9, 1), ((1 << 16) + 1, 1), 5, False), ((9, 1), ((1 << 17) - 1, 1), 5, False),
    ((9, 2), (20, 1), 5, False), ((9, 2), (3, 3), 5, True), ((9, 2), (3, 129), 5, True), ((9, 2), (3, 130), 5, False),
    ((9, 255), (3, 1), 5, True), ((9, 1), (3, 255), 5, False), ((9, 2), (0, 0), 5, True), ((9, 2), (1, 0), 5, False),
])
def test_a_head_that_its_peer_cannot_have_is_refused(before, arriving, sender, kept):
    """Past the last id, backwards, of a kernel that does not follow, or in another GPU's name."""
    async def testbench(step, reset):
        quiet = {"head": 0, "epoch": 0, "number": 3, "told": [Listener(0, 0)], "heard": [5], "taken": True}
        for step_to in ((0, 254), before) if before[1] == 255 else (before,):
            await step(arriving=HeadPacket(*step_to, 5, 3), **quiet)
        shown = await step(arriving=HeadPacket(*arriving, 5, 3), sender=sender, **quiet)
        assert shown[1] == (before,) and shown[3] == (kept and before != arriving)
        shown = await step(arriving=None, **quiet)
        assert shown[1] == (arriving if kept else before,) and shown[4] == (None if kept else (arriving[0], 5))

    simulate(1, testbench)


def taken_by_a_listener(packets, geometry) -> tuple[int, int]:
    """The (head, epoch) that a listener knows in the end; it must refuse none of the packets."""
    listener = HeadExchangeModel(geometry)
    still = {"head": 0, "epoch": 0, "number": 9, "told": [Listener(0, 0)] * geometry.dma.peers,
             "heard": [3] + [8] * (geometry.dma.peers - 1), "taken": True, "sender": 3}
    for packet in packets:
        listener.step(arriving=packet, **still)
        assert listener.step(arriving=None, **still).refused is None, packets
    return listener.known[0]


@pytest.mark.parametrize("peers", [1, 3])
@pytest.mark.parametrize("kernels", [(5, 0, 1), (5, 0, 5), (5, 0, 4), (5, 0, 200), (5, 105, 205), (5, 0, 1, 0, 1)],
                         ids=str)
@pytest.mark.parametrize("during", [0, 1, 2])
def test_a_listener_refuses_no_head_however_late(peers, kernels, during):
    """Attack: reset of one side. Each kernel begins while the link takes nothing; in kernel 5 the head was 40."""
    async def testbench(step, reset):
        told, sent = [Listener(6 + peer, 1) for peer in range(peers)], {6 + peer: [] for peer in range(peers)}
        quiet = {"number": 3, "told": told, "heard": [0] * peers, "arriving": None}

        async def run(head, epoch, cycles, taken):
            for _ in range(cycles):
                packet, *_ = await step(head=head, epoch=epoch, taken=taken, **quiet)
                if packet and taken:
                    sent[packet.device].append(packet)

        await run(40, 5, 2 + during, True)
        await run(41, 5, during, False)
        for kernel in kernels[1:]:
            await run(0, kernel, 3, False)
        await run(0, kernels[-1], 4 * peers + 4, True)
        for packets in sent.values():
            assert taken_by_a_listener(packets, geometry(peers)) == (0, kernels[-1])

    simulate(peers, testbench)


def test_a_new_listener_in_the_middle_of_a_kernel_takes_its_head():
    """It knows a head of kernel 5, from before it was told no more; 141 does not follow 5."""
    async def testbench(step, reset):
        sent = []
        for epoch, device in ((5, 6), (5, 7), (105, 7), (141, 7), (141, 6), (141, 6)):
            for _ in range(4):
                packet, *_ = await step(head=epoch, epoch=epoch, number=3, told=[Listener(device, 1)], heard=[0],
                                        taken=True, arriving=None)
                sent += [packet] if packet and packet.device == 6 else []
        assert taken_by_a_listener(sent, geometry(1)) == (141, 141)

    simulate(1, testbench)


@pytest.mark.parametrize("late", [0, 1, 5])
def test_a_peer_that_becomes_another_gpu_has_no_head(late):
    """The old one's head 40 of kernel 2 is forgotten; the new one's, of any kernel, is kept `late` cycles after."""
    async def testbench(step, reset):
        quiet = {"head": 0, "epoch": 0, "number": 3, "told": [Listener(0, 0)] * 2, "taken": True}
        await step(arriving=HeadPacket(40, 2, 5, 3), heard=[5, 6], **quiet)
        await step(arriving=HeadPacket(50, 2, 6, 3), heard=[5, 6], **quiet)
        for _ in range(late):
            shown = await step(arriving=None, heard=[7, 6], **quiet)
        assert late < 2 or shown[1] == ((0, 0), (50, 2))
        assert (await step(arriving=HeadPacket(3, 1, 7, 3), heard=[7, 6], **quiet))[3]
        shown = await step(arriving=HeadPacket(41, 2, 5, 3), heard=[7, 6], **quiet)  # nobody's
        assert shown[1] == ((3, 1), (50, 2)) and shown[4] is None

    simulate(2, testbench)
