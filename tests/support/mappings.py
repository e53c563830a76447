"""The tables that software maps address space with, as dicts of numbers, and onto the ports of a block."""

from t3sim.rtl.layouts import mapping_tables


def random_tables(rng, geometry, **chosen):
    """Every field at any value, but for those that are chosen for a table's entries."""
    return {name: [{field: rng.getrandbits(bits.width) for field, bits in layout} | chosen.get(name, {})
                   for _ in range(entries)]
            for name, (layout, entries) in mapping_tables(geometry).items()}


def equal_tables(geometry, **fields):
    """All entries of a table are the same: zeros, but for `fields`, of whatever table."""
    return {name: [{field: fields.get(field, 0) for field, _ in layout}] * entries
            for name, (layout, entries) in mapping_tables(geometry).items()}


def program(ctx, dut, tables):
    for name, entries in tables.items():
        if name in dut.signature.members:
            for port, values in zip(getattr(dut, name), entries, strict=True):
                ctx.set(port, values)
