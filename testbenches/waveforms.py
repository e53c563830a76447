"""Waveforms for the pages of the blocks: `python -m t3sim.testbenches.waveforms tracker`, or `make waves`.

A recording of the block's testbench, of which the few cycles are kept in which most of its streams move, as WaveDrom.
"""

import io
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from vcd.reader import TokenKind, tokenize

from t3sim.cosim.testbench import BLOCKS, Testbench, run_testbench
from t3sim.testbenches.command_line import block_parser, chosen_blocks
from t3sim.testbenches.geometries import GEOMETRIES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "waves"
SEED, CYCLES, FIRST_CYCLES = 1, 16, 3000
_MOST_STREAMS, _MOST_OTHERS = 5, 5

#: Of blocks that have less in geometry small: egress repeats lines for broadcasts only beside a queue of commands.
_GEOMETRY = {"egress": "grouped"}


def sampled(path: Path, most: int) -> Iterator[dict[str, int]]:
    """Give the ports' values before each rising edge of `clk`, of `most` cycles; without a clock, at each change."""
    names: dict[str, list[str]] = {}
    values: dict[str, int] = {}
    clocked, found = False, 0
    # The ports are the first scope; the names inside the block are no identifiers to the reader.
    header, changes = path.read_bytes().split(b"$enddefinitions", 1)
    header = header.replace(b"$rootio", b"ports").partition(b"$upscope")[0]
    for token in tokenize(io.BytesIO(header + b"$upscope $end\n$enddefinitions" + changes)):
        if token.kind is TokenKind.VAR:
            names.setdefault(token.var.id_code, []).append(token.var.reference)
            clocked |= token.var.reference == "clk"
        elif token.kind is TokenKind.CHANGE_TIME and not clocked and values:
            yield dict(values)
            found += 1
        elif token.kind in (TokenKind.CHANGE_SCALAR, TokenKind.CHANGE_VECTOR):
            change = token.scalar_change if token.kind is TokenKind.CHANGE_SCALAR else token.vector_change
            value = int(change.value) if str(change.value).isdigit() else 0
            for name in names.get(change.id_code, ()):
                if name == "clk" and value and not values.get("clk"):
                    yield {port: bits for port, bits in values.items() if port != "clk"}
                    found += 1
                values[name] = value
        if found == most:
            return


def streams(ports: set[str]) -> list[str]:
    return sorted(name.removesuffix("__valid") for name in ports if name.endswith("__valid"))


def moves(cycle: dict[str, int], stream: str) -> bool:
    return bool(cycle.get(f"{stream}__valid") and cycle.get(f"{stream}__ready", 1))


def wavedrom(block: str, geometry: str, cycles: list[dict[str, int]]) -> dict:
    """Draw the stretch of `cycles` in which most streams move, and then most often."""
    ports = set().union(*cycles)
    of = streams(ports)
    moved = [{stream for stream in of if moves(cycle, stream)} for cycle in cycles]
    others = sorted(port for port in ports if "__" not in port and port != "rst")

    def worth(start: int) -> tuple[int, int]:
        window = moved[start:start + CYCLES]
        changed = sum(len({cycle.get(port) for cycle in cycles[start:start + CYCLES]}) > 1 for port in others)
        return len(set().union(*window)) * 4 + changed, sum(map(len, window))
    start = max(range(max(1, len(cycles) - CYCLES + 1)), key=worth)
    window = cycles[start:start + CYCLES]
    active = sorted(of, key=lambda stream: -sum(moves(cycle, stream) for cycle in window))[:_MOST_STREAMS]
    lanes: list = [{"name": "clk", "wave": "P" + "." * (len(window) - 1)}] if "rst" in ports else []
    for stream in sorted(active):
        handshake = [name for part in ("valid", "ready") if (name := f"{stream}__{part}") in ports]
        lanes += [{}, *(_lane(name, window) for name in handshake)]
        if f"{stream}__payload" in ports:
            shown = [cycle.get(f"{stream}__payload") if cycle.get(f"{stream}__valid") else None for cycle in window]
            lanes.append(_values(f"{stream}.payload".replace("__", "."), shown))
    changing = [port for port in others if len({cycle.get(port) for cycle in window}) > 1][:_MOST_OTHERS]
    lanes += [{}] * bool(changing and lanes) + [_lane(port, window) for port in changing]
    return {"signal": lanes, "config": {"hscale": 2},
            "foot": {"text": f"{block}, geometry {geometry}, seed {SEED}, from cycle {start} of the recording"}}


def _lane(port: str, window: list[dict[str, int]]) -> dict:
    shown = [cycle.get(port, 0) for cycle in window]
    name = port.replace("__", ".")
    if max(shown) > 1:
        return _values(name, shown)
    wave = "".join("." if i and bit == shown[i - 1] else str(bit) for i, bit in enumerate(shown))
    return {"name": name, "wave": wave}


def _values(name: str, shown: list[int | None]) -> dict:
    wave, data = "", []
    for i, value in enumerate(shown):
        if i and value == shown[i - 1]:
            wave += "."
        elif value is None:
            wave += "x"
        else:
            wave, data = wave + "=", [*data, f"{value:x}" if value < 1 << 36 else f"..{value & 0xFFFFFFF:07x}"]
    return {"name": name, "wave": wave, "data": data}


def record(block: str) -> dict:
    """Run the block's testbench, one round of each test, and choose. Raises Failure."""
    with tempfile.TemporaryDirectory() as folder:
        geometry = _GEOMETRY.get(block, "small")
        run_testbench(Testbench(block, GEOMETRIES[geometry], SEED, rounds=1), Path(folder), waves=True)
        return wavedrom(block, geometry, list(sampled(Path(folder) / "dump.vcd", FIRST_CYCLES)))


def main() -> int:
    """Record waveforms; returns exit code 0."""
    parser = block_parser("t3sim.testbenches.waveforms", __doc__, BLOCKS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for block in chosen_blocks(parser, parser.parse_args(), BLOCKS):
        (FOLDER / f"{block}.json").write_text(json.dumps(record(block), indent=1) + "\n", encoding="utf-8")
        print(f"{block}: {FOLDER / f'{block}.json'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
