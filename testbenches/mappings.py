"""The tables that software maps address space with, as dicts of numbers, and onto the ports of a block."""

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import register_map
from t3sim.testbenches.bench import Bench
from t3sim.testbenches.reference.address_generator import entry_of

Tables = dict[str, list[dict]]  #: of `t3sim.rtl.layouts.mapping_tables`


def fields_of(geometry: Geometry, table: str) -> dict[str, int]:
    """Return field: width of a table's entry, under the names of its layout."""
    widths: dict[str, int] = {}
    for register in register_map(geometry).table(table).registers:
        for field in register.fields:
            name = field.name.removesuffix("_lo").removesuffix("_hi")
            widths[name] = widths.get(name, 0) + field.width
    return widths


def random_tables(bench: Bench) -> Tables:
    """Draw every field of every entry at any value; now and then a region names an entry after the last one."""
    geometry, rng, tables = bench.geometry, bench.rng, register_map(bench.geometry).tables
    drawn = {table.name: [{name: rng.getrandbits(width) for name, width in fields_of(geometry, table.name).items()}
                          for _ in range(table.entries)]
             for table in tables}
    for region in drawn["region"]:
        region |= {table.name: rng.randrange(table.entries) for table in tables
                   if table.name != "region" and rng.random() < 0.7}
    return drawn


def entry_named(tables: Tables, region: int, table: str) -> dict:
    """Return the entry that a region names."""
    return entry_of(tables[table], tables["region"][region][table])


def program(bench: Bench, tables: Tables) -> None:
    """Set those tables that the block has ports for."""
    for name, entries in tables.items():
        for port, entry in zip(bench.elements(name), entries):
            bench.set(port, entry)
