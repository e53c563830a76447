"""IntensityMonitor against its model: random phases, restarts in the middle of them, all thresholds."""

from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.intensity_monitor import IntensityMonitorModel


async def step(bench: Bench, model: IntensityMonitorModel, occupancy: list[int], **inputs: int) -> None:
    inputs = {"restart": 0, "producer_active": 0, "communication_seen": 0, **inputs}
    least = inputs.pop("least", 0)
    for name, value in (*inputs.items(), *zip(bench.elements("occupancy"), occupancy)):
        bench.set(name, value)
    model.step(occupancy=occupancy, least=least, **inputs)
    await bench.cycle()


@rounds(100, cover=("threshold 127", "threshold 15", "threshold 5", "threshold 3"))
async def random_phases(bench: Bench) -> None:
    """Measure random phases; mean, quotient and threshold are the model's."""
    rng, channel, model = bench.rng, bench.geometry.channel, IntensityMonitorModel(bench.geometry)
    most = highest = channel.queue_entries
    above = min(255, 4 * most + 1)
    marks = sorted(rng.randrange(above + 1) for _ in range(3))
    if bench.number < 8:  # the first four whole rounds are sure to have each threshold once
        marks, highest = (bench.number // 2 * [0] + 3 * [above])[:3], min(most, 63)
    for index, mark in enumerate(marks):
        bench.set(f"breakpoints[{index}]", mark)
    for _ in range(rng.choice((1, 1, 2))):  # the second restart is in the middle of the first phase
        await step(bench, model, [most] * channel.channels, restart=1, producer_active=1)
        low = rng.randrange(highest + 1)
        high = rng.randrange(low, highest + 1)
        for _ in range(rng.choice((0, 1 << rng.randrange(9), rng.randrange(60), rng.randrange(400)))):
            await step(bench, model, [rng.randint(low, high) for _ in range(channel.channels)],
                       producer_active=int(rng.random() < 0.7))
            assert not bench.get("done") and bench.get("threshold") == NO_THRESHOLD and bench.get("mean") == 0
    if bench.cut and rng.random() < 0.5:
        return  # a reset while it watches
    await step(bench, model, [most] * channel.channels, producer_active=1, communication_seen=1)
    for _ in range(min(bench.cut or 100, bench["mean"].width + 1)):
        if bench.get("done"):
            break
        assert bench.get("threshold") == NO_THRESHOLD
        await step(bench, model, [most] * channel.channels, producer_active=1, communication_seen=1)
    if bench.cut:
        return
    for _ in range(10):  # what comes later changes nothing
        assert bench.get("done")
        assert (bench.get("mean"), bench.get("threshold")) == (model.mean, model.threshold(marks))
        occupancy = [rng.randint(0, most) for _ in range(channel.channels)]
        await step(bench, model, occupancy, producer_active=rng.getrandbits(1), communication_seen=rng.getrandbits(1))
    bench.reach(f"threshold {model.threshold(marks)}")


@rounds(40, cover=("early", "later", "with the producer"))
async def a_phase_has_enough_samples_whoever_sends_when(bench: Bench) -> None:
    """Let communication start and stop at any time; a phase ends only with enough samples or its producer."""
    rng, channel, model = bench.rng, bench.geometry.channel, IntensityMonitorModel(bench.geometry)
    # The first round is sure to end with the producer: it runs for one cycle.
    least, last = (rng.choice((0, 0, 1, 3, 128)), rng.randrange(400)) if bench.number else (1, 1)
    bench.set("least", least)
    occupancy = [rng.randint(0, channel.queue_entries) for _ in range(channel.channels)]
    asks, rests = rng.choice((0.3, 0.01)), rng.choice((0, 0.01))
    await step(bench, model, occupancy, restart=1)
    for cycle in range(bench.cut or 600):
        await step(bench, model, occupancy, least=least, communication_seen=int(rng.random() < asks),
                   producer_active=int(cycle < last and rng.random() >= rests))
        if model.ended:
            break
        assert not bench.get("done") and bench.get("threshold") == NO_THRESHOLD
    if bench.cut or not model.ended:
        return
    await bench.cycle(bench["mean"].width + 1)
    assert bench.get("done") and bench.get("mean") == model.mean
    enough = min(64 * least, 1 << channel.sample_bits)
    bench.reach("early" if not least else "later" if model.samples >= enough else "with the producer")


@rounds(1)
async def long_phases(bench: Bench) -> None:
    """Measure nearly full queues so long that sums and remainders need most bits; mean and quotient are exact.

    A round number of samples is not none; at some time it is enough.
    """
    rng, channel = bench.rng, bench.geometry.channel
    most = 1 << min(channel.sample_bits, 12)
    for cycles in (most // 2, most - 1, most, most + 40):
        model = IntensityMonitorModel(bench.geometry)
        full = [channel.queue_entries] * channel.channels
        await step(bench, model, full, restart=1)
        for start in range(0, cycles, 4):
            occupancy = [rng.choice((channel.queue_entries, channel.queue_entries - 1)) for _ in full]
            for _ in range(min(4, cycles - start)):
                await step(bench, model, occupancy, producer_active=1)
        while not bench.get("done"):
            await step(bench, model, full, communication_seen=1)
        assert bench.get("mean") == model.mean
    assert model.samples == min(most + 40, 1 << channel.sample_bits)
