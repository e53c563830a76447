"""NmcAlu against its exact model: columns of all formats, around every exponent and at the formats' corners."""

from t3sim.rtl import formats
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.floats import element, just_below, nearly_opposite
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.reference.nmc_alu import AluDtype, AluOp, Operands, combine
from t3sim.testbenches.scoreboard import Scoreboard


@rounds(10)
async def random_columns(bench: Bench) -> None:
    """Add, store and exclusive-or random columns around every exponent; compare every bit with the exact model."""
    bits = bench["result.payload"].width
    results = Scoreboard("results")
    operands = StreamDriver(bench, "operands", on_accept=lambda item: results.expect(
        {"column": combine(Operands(item["old"], item["new"], AluOp(item["op"]), AluDtype(item["dtype"])),
                           bits // 8)}))
    StreamMonitor(bench, "result", results.check)
    for _ in range(1000):
        dtype = bench.rng.choice(list(AluDtype))
        form = getattr(formats, dtype.name)
        old = new = 0
        for at in range(0, bits, form.width):
            one, other = element(bench.rng, form), element(bench.rng, form)
            kind = bench.rng.random()
            if kind > 0.8:
                other = just_below(bench.rng, form, one, form)
            elif kind < 0.25:
                other = nearly_opposite(bench.rng, form, one, form)
            old, new = old | one << at, new | other << at
        op = bench.rng.choice(list(AluOp)) if bench.rng.random() < 0.3 else AluOp.ADD
        operands.send({"old": old, "new": new, "op": int(op), "dtype": int(dtype)})
    await bench.run(lambda: operands.idle and results.empty, 20_000)
