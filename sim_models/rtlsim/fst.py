"""Waveforms of a VCD file as FST: pyvcd reads, pylibfst, a binding of GTKWave's own library, writes."""

import io
import re
from pathlib import Path

from pylibfst import ffi, lib
from vcd.reader import TokenKind, tokenize

from t3sim.base.errors import Failure

#: Names may be anything (Verilator's `$rootio`, Yosys's `count$32`), of which pyvcd reads identifiers only.
_NAMES = re.compile(rb"(\$scope\s+\w+\s+|\$var\s+\w+\s+\d+\s+\S+\s+)(.*?)\s*\$end")
_PER_SECOND = {"s": 0, "ms": -3, "us": -6, "ns": -9, "ps": -12, "fs": -15}


def to_fst(vcd: Path, fst: Path) -> None:
    """Write the waves of one file to another. Raises Failure if that cannot be."""
    partial = fst.with_name(fst.name + ".partial")
    writer = lib.fstWriterCreate(str(partial).encode(), 1)
    if writer == ffi.NULL:
        raise Failure(f"{partial} cannot be written")
    handles: dict[str, tuple[int, int]] = {}  # by VCD's identifier: FST's handle, bits
    names: list[bytes] = []

    def numbered(found: re.Match) -> bytes:
        names.append(found[2])
        return b"%bn%d $end" % (found[1], len(names) - 1)

    header, mark, changes = vcd.read_bytes().partition(b"$enddefinitions")
    with io.BytesIO(_NAMES.sub(numbered, header) + mark + changes) as file:
        for token in tokenize(file):
            kind = token.kind
            if kind is TokenKind.CHANGE_TIME:
                lib.fstWriterEmitTimeChange(writer, token.time_change)
            elif kind is TokenKind.CHANGE_SCALAR:
                handle, _ = handles[token.scalar_change.id_code]
                lib.fstWriterEmitValueChange(writer, handle, token.scalar_change.value.encode())
            elif kind is TokenKind.CHANGE_VECTOR:
                handle, bits = handles[token.vector_change.id_code]
                lib.fstWriterEmitValueChange(writer, handle, _bits(token.vector_change.value, bits).encode())
            elif kind is TokenKind.TIMESCALE:
                scale = token.timescale
                lib.fstWriterSetTimescale(writer, _PER_SECOND[scale.unit.value] + len(str(scale.magnitude.value)) - 1)
            elif kind is TokenKind.SCOPE:
                lib.fstWriterSetScope(writer, lib.FST_ST_VCD_MODULE, names[int(token.scope.ident[1:])], ffi.NULL)
            elif kind is TokenKind.UPSCOPE:
                lib.fstWriterSetUpscope(writer)
            elif kind is TokenKind.VAR:
                variable = token.var
                before, _ = handles.get(variable.id_code, (0, 0))
                handle = lib.fstWriterCreateVar(writer, lib.FST_VT_VCD_WIRE, lib.FST_VD_IMPLICIT, variable.size,
                                                names[int(variable.ref_str[1:])], before)
                handles.setdefault(variable.id_code, (handle, variable.size))
    lib.fstWriterClose(writer)
    partial.replace(fst)


def _bits(value: int | str, bits: int) -> str:
    """Write all bits of a value; VCD leaves out leading ones, which are 0, or x or z if the first is."""
    if isinstance(value, int):
        return f"{value:0{bits}b}"
    return value.rjust(bits, value[0] if value[0] in "xzXZ" else "0")
