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


def rows_of(group: tuple[Register, ...]) -> list[tuple[str, ...]]:
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
        lines += ["| " + " | ".join(row) + " |" for row in rows_of(group)] + [""]
    return "\n".join(lines)


def to_html(geometry: Geometry) -> str:
    """Write one page without anything from elsewhere."""
    tables = []
    for title, group in _groups(geometry):
        head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
        rows = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                         for row in rows_of(group))
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


#: Properties of a field in SystemRDL, by its register's access.
_RDL_ACCESS = {"rw": "sw = rw; hw = r;", "ro": "sw = r; hw = w;", "w1": "sw = w; hw = r; singlepulse;"}


def to_systemrdl(geometry: Geometry) -> str:
    """Write SystemRDL 2.0, of which PeakRDL makes IP-XACT, and register models in UVM and Python."""
    registers = register_map(geometry)
    lines = ["// Registers of T3's configuration bus, printed by `t3 registers --format systemrdl`.", ""]
    for kind, codes in _CODES.items():
        lines += [f"enum t3_{kind.lower()} {{", *(f"    {name} = {code};" for name, code in codes.items()), "};", ""]
    lines += ["addrmap t3 {", "    default regwidth = 32;", ""]
    lines += _rdl_registers(registers.fixed, "    ")
    for table in registers.tables:
        lines += ["    regfile {", f"        desc = {_rdl_text(table.description)};",
                  *_rdl_registers(table.registers, "        "),
                  f"    }} {table.name}[{table.entries}] @ {table.base:#x} += {table.stride:#x};", ""]
    return "\n".join([*lines, "};", ""])


def _rdl_registers(registers: tuple[Register, ...], indent: str) -> list[str]:
    lines = []
    for register in registers:
        fields = [field for field in register.fields if field.width]
        if not fields:
            continue
        lines.append(f"{indent}reg {{")
        if register.description:
            lines.append(f"{indent}    desc = {_rdl_text(register.description)};")
        for field in fields:
            codes = _CODES.get(field.name.upper(), {})
            encoded = f" encode = t3_{field.name};" if max(codes.values(), default=-1) in range(field.mask + 1) else ""
            lines.append(f"{indent}    field {{ {_RDL_ACCESS[register.access]} desc = {_rdl_text(field.description)};"
                         f"{encoded} }} \\{field.name} [{field.lsb + field.width - 1}:{field.lsb}] = {field.reset:#x};")
        lines.append(f"{indent}}} {register.name} @ {register.offset:#x};")
    return lines


def _rdl_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    "systemrdl": (to_systemrdl, "t3_registers.rdl"),
}
