"""The register map of the configuration bus for people and for C, from the table that makes the bus decoder."""

import html
from dataclasses import asdict

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import (
    ERRORS,
    OPERATIONS,
    POLICIES,
    Register,
    register_map,
)

_ACCESS = {"rw": "read, write", "ro": "read only", "w1": "a pulse for each bit written as 1; reads as 0"}
_CODES = {"POLICY": POLICIES, "OPERATION": OPERATIONS, "ERROR": ERRORS}


def _groups(geometry: Geometry) -> list[tuple[str, tuple[Register, ...]]]:
    registers = register_map(geometry)
    return [("Registers", registers.fixed), *(
        (f"Table {one.name}: {one.description}; entry i of {one.entries} at {one.base:#05x} + i * {one.stride:#04x}",
         one.registers) for one in registers.tables)]


def _rows(group: tuple[Register, ...]) -> list[tuple[str, ...]]:
    return [(f"{register.offset:#05x}", register.name, register.access,
             f"{f.lsb + f.width - 1}:{f.lsb}" if f.width > 1 else f"{f.lsb}", f.name, f"{f.reset:#x}", f.description)
            for register in group for f in register.fields if f.width]


_COLUMNS = ("offset", "register", "access", "bits", "field", "reset", "meaning")


def to_markdown(geometry: Geometry) -> str:
    lines = ["# Registers of the configuration bus", "",
             "Printed by `t3 registers`. Offsets are bytes; a register has 32 bits. Access: "
             + "; ".join(f"{key} is {words}" for key, words in _ACCESS.items()) + ".", ""]
    for title, group in _groups(geometry):
        lines += [f"## {title}", "", "| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in _rows(group)] + [""]
    return "\n".join(lines)


def to_html(geometry: Geometry) -> str:
    """Write one page without anything from elsewhere."""
    tables = []
    for title, group in _groups(geometry):
        head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
        rows = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                         for row in _rows(group))
        tables.append(f"<h2>{html.escape(title)}</h2>\n<table>\n<tr>{head}</tr>\n{rows}\n</table>")
    access = "; ".join(f"{key} is {words}" for key, words in _ACCESS.items())
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>T3 registers</title>\n'
            "<style>body{font-family:sans-serif}table{border-collapse:collapse}td,th{border:1px solid #999;"
            "padding:2px 6px;text-align:left}</style>\n</head>\n<body>\n<h1>Registers of the configuration bus</h1>\n"
            f"<p>Offsets are bytes; a register has 32 bits. Access: {access}.</p>\n"
            + "\n".join(tables) + "\n</body>\n</html>\n")


def to_c(geometry: Geometry) -> str:
    """Write a header: offsets, and position, mask and reset value of every field; C99 and C++."""
    registers = register_map(geometry)
    lines = ["/* Registers of T3's configuration bus, printed by `t3 registers --format c`. */",
             "#ifndef T3_REGISTERS_H", "#define T3_REGISTERS_H", "",
             "/* Byte offset of a register of entry i of a table. */"]
    for table in registers.tables:
        name = f"T3_{table.name.upper()}"
        lines += [f"#define {name}_ENTRIES {table.entries}u",
                  f"#define {name}(i, offset) ({table.base:#x}u + (i) * {table.stride:#x}u + (offset))"]
    lines.append("")
    for _, group in _groups(geometry):
        for register in group:
            lines.append(f"#define T3_{register.name} {register.offset:#x}u /* {_ACCESS[register.access]} */")
            for f in register.fields:
                if f.width:
                    prefix = f"T3_{register.name}_{f.name.upper()}"
                    lines += [f"#define {prefix}_SHIFT {f.lsb}u",
                              f"#define {prefix}_MASK {f.mask << f.lsb:#x}u /* {f.description} */",
                              f"#define {prefix}_RESET {f.reset << f.lsb:#x}u"]
            lines.append("")
    for kind, codes in _CODES.items():
        lines += [f"#define T3_{kind}_{name.upper()} {code}u" for name, code in codes.items()] + [""]
    return "\n".join([*lines, "#endif", ""])


def to_json(geometry: Geometry) -> dict:
    registers = register_map(geometry)
    return {"registers": [asdict(register) for register in registers.fixed],
            "tables": [asdict(table) for table in registers.tables],
            "codes": {kind.lower(): codes for kind, codes in _CODES.items()}}


#: Format: (function, file name).
FORMATS = {
    "markdown": (to_markdown, "registers.md"),
    "html": (to_html, "registers.html"),
    "c": (to_c, "t3_registers.h"),
}
