"""CorrectedRow against its cycle-exact model: rows with flipped bits in any word, searched at any pace."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.corrected_row import CorrectedRowModel, Fault, Shown
from t3sim.testbenches.rows import Rows


def _shown(bench: Bench) -> Shown:
    fault, entry = bench.get("fault"), bench["entry"].read_bits()
    told = Fault(fault["uncorrectable"], fault["in_entry"], fault["way"]) if fault["valid"] else None
    return Shown(bench.get("used"), bench.get("match"), entry, bench.get("flawed"), bench.get("lost"), told)


@rounds(16, cover=("a tag is hurt", "an entry is hurt", "back to back", "the last write matches",
                   "flawed but not needed"))
async def random_rows(bench: Bench) -> None:
    """Search random rows with flips in tags, entries and check bits; compare with the codec's model per cycle."""
    rng, tracker = bench.rng, bench.geometry.tracker
    protection = "secded" if tracker.protection == "none" else tracker.protection
    model = CorrectedRowModel(protection, tracker.ways, tracker.tag_bits, bench["entry"].width)
    rows = Rows(rng, model, protection == "secded")
    needed, taken = False, False
    for cycle in range(bench.cut or 300):
        if cycle % 50 == 0:
            pace, patience = rng.choice((0.1, 0.5, 1)), rng.choice((0.1, 0.9))
        row, tag = rows.search()
        expected = model.show(needed)
        take = not expected.flawed and rng.random() < pace
        for name in ("tags", "entries"):
            for way, word in enumerate(getattr(row, name)):
                bench.set(f"{name}[{way}]", word)
        for name, value in (("tag", tag), ("last_way", row.last_way), ("last_tag", row.last_tag),
                            ("last_entry", row.last_entry), ("needed", needed), ("take", take)):
            bench.set(name, int(value))
        await bench.settle()
        shown = _shown(bench)
        assert shown == expected, f"cycle {bench.now}: expected {expected}, got {shown}"
        if shown.fault:
            bench.reach("an entry is hurt" if shown.fault.in_entry else "a tag is hurt")
        bench.reach("back to back", take and taken)
        bench.reach("flawed but not needed", model.show(True).flawed and not needed)
        await bench.edge()
        model.tick(needed, row if take else None, tag)
        taken = take
        if take:
            needed = bool(model.show(False).match) and rng.random() < 0.8
            bench.reach("the last write matches", model.show(False).match & row.last_way)
        elif needed and not expected.flawed and rng.random() > patience:
            needed = False
