"""ReadyTable against its model: tiles complete in any order while groups are asked for, kernel by kernel."""

from t3sim.rtl.registers import READY_COUNT_BITS
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.ready_table import Ask, ReadyTableModel


class Table:
    """The block and its model, cycle by cycle."""

    def __init__(self, bench: Bench, shift: int) -> None:
        self.bench, self.shift = bench, shift
        self.groups = bench.geometry.dma.ready_groups or 4  # of the block alone, where a geometry has none
        self.ids = 1 << bench.geometry.tracker.wg_bits
        self.model, self.ask = ReadyTableModel(self.groups), None
        bench.set("shift", shift)

    async def cycle(self, completed: int | None = None, restart: int = 0) -> bool:
        """One cycle; whether the ask was taken."""
        bench, ask = self.bench, self.ask
        bench.set("completion", {"valid": int(completed is not None),
                                 "wg": bench.rng.randrange(self.ids) if completed is None else completed})
        bench.set("asks.valid", int(ask is not None))
        if ask is not None:
            bench.set("asks.payload", ask._asdict())
        bench.set("restart", restart)
        await bench.settle()
        ready = bench.get("asks.ready")
        assert ready == self.model.step(shift=self.shift, completed=completed, ask=ask, restart=restart), (
            f"cycle {bench.now}: {ask}")
        await bench.edge()
        if ready:
            self.ask = None
        return bool(ready)


@rounds(12, cover=("taken", "taken at once", "restart", "after the last group"))
async def random_kernels(bench: Bench) -> None:
    """Complete tiles, mostly of few groups, across restarts; compare every answer with the model per cycle."""
    rng, most = bench.rng, bench.geometry.tracker.wg_bits
    table = Table(bench, rng.randrange(most))
    often, restarts = rng.choice((0.1, 0.5, 1.0)), rng.choice((0, 0.02))
    few = min(table.ids, max(2, rng.choice((1, 2, table.groups)) << table.shift))
    for _ in range(bench.cut or 400):
        completed = None
        if rng.random() < often:
            completed = rng.randrange(few if rng.random() < 0.9 else table.ids)
            bench.reach("after the last group", completed >> table.shift >= table.groups)
        if table.ask is None and rng.random() < 0.4:
            table.ask = Ask(rng.randrange(table.groups), rng.choice((0, 1, 1, 2, 3, 10)))
        bench.reach("taken at once", table.ask is not None and not table.ask.tiles)
        restart = int(rng.random() < restarts)
        bench.reach("restart", restart)
        bench.reach("taken", await table.cycle(completed, restart))


@rounds(4)
async def as_many_tiles_as_can_be_counted(bench: Bench) -> None:
    """Complete more tiles than a counter can count: it stays at its largest value."""
    table, most = Table(bench, bench.geometry.tracker.wg_bits - 1), (1 << READY_COUNT_BITS) - 1
    for _ in range(bench.cut or most + 5):
        await table.cycle(bench.rng.randrange(table.ids >> 1))
    if bench.cut is None:
        table.ask = Ask(0, most)
        assert any([await table.cycle() for _ in range(3)])


@rounds(2 * READY_COUNT_BITS)
async def asks_for_more_than_is_complete_wait(bench: Bench) -> None:
    """Ask for each power of two, and complete ids past the last group: every bit counts, nothing is answered."""
    table, bit = Table(bench, 0), bench.number // 2
    group = bench.rng.randrange(table.groups)
    most = bench.geometry.tracker.wg_bits
    for behind in range(table.groups.bit_length() - 1, most):
        await table.cycle(1 << behind | group)
    table.ask = Ask(group, 1)
    assert not any([await table.cycle() for _ in range(4)])
    await table.cycle(group)
    assert any([await table.cycle() for _ in range(4)])
    table.ask = Ask(group, max(2, 1 << bit))
    assert not any([await table.cycle() for _ in range(4)])
