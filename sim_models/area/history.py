"""Area, depth, Fmax and simulation speed by commit, in a file of one JSON object per line."""

import json
import os
import subprocess
from pathlib import Path

from t3sim.area.measure import BlockArea
from t3sim.base.cores import processor
from t3sim.base.errors import BadInput
from t3sim.base.output import write_whole

FILE = Path(__file__).resolve().parents[2] / "docs" / "history.jsonl"
SPEED = "cycles_per_second"  #: of the lockstep, as `t3 bench` measures it

_UNITS = {"memory_bits": "memory bits", "flip_flops": "flip-flops", "gate_equivalents": "gate equivalents",
          "logic_depth": "gate delays", "luts": "LUTs", "fmax_mhz": "MHz", SPEED: "cycles/s"}


def entry(blocks: dict[str, BlockArea], library: str) -> dict:
    """Make the entry of the commit that is checked out, `-dirty` if the work tree differs.

    What was not measured is absent.
    """
    git_describe = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                                  cwd=FILE.parent, capture_output=True, text=True, check=False)
    return {"commit": git_describe.stdout.strip() or "unknown", "library": library,
            "blocks": {name: _figures(block) for name, block in blocks.items()}}


def speed(cycles_per_second: float) -> dict:
    """Return what an entry has besides, where the simulation was measured, too."""
    return {SPEED: round(cycles_per_second), "host": f"{processor()}, {os.cpu_count()} CPUs"}


def _figures(block: BlockArea) -> dict[str, float]:
    figures = {"memory_bits": block.memory_bits, "flip_flops": block.flip_flops,
               "gate_equivalents": round(block.silicon.gate_equivalents),
               "logic_depth": round(block.silicon.logic_depth, 1)}
    if block.fpga:
        figures["luts"] = block.fpga.luts
        if block.fpga.fmax_mhz:
            figures["fmax_mhz"] = round(block.fpga.fmax_mhz, 1)
    return figures


def read(path: Path | None = None) -> list[dict]:
    """Read the history, oldest first. Raises BadInput."""
    path = path or FILE
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise BadInput(f"{path} is not a history: {error}") from None


def append(new: dict, path: Path | None = None) -> None:
    """Append an entry to the history; a second entry of a commit takes the first one's place."""
    path = path or FILE
    other_entries = [old for old in read(path) if old["commit"] != new["commit"]]
    write_whole(path, "".join(json.dumps(item) + "\n" for item in [*other_entries, new]))


def changes(old: dict, new: dict) -> list[str]:
    """List what differs in the blocks, a line per figure.

    Figures that one of them lacks are left out, and so are those of a standard-cell library if they have different
    ones.
    """
    by_library = {"gate_equivalents", "logic_depth"} if old["library"] != new["library"] else set()
    pairs = [(name, key, value, old["blocks"].get(name, {}).get(key))
             for name, figures in new["blocks"].items() for key, value in figures.items() if key not in by_library]
    return [_change(name, key, before, now) for name, key, now, before in pairs if before and now != before]


def speed_change(old: dict, new: dict) -> str:
    """Write the change of the speed in one line; speeds of two hosts are not compared."""
    if SPEED not in old or old["host"] != new["host"]:
        return f"lockstep: {new[SPEED]:,} {_UNITS[SPEED]}; the last entry has none of this host"
    return _change("lockstep", SPEED, old[SPEED], new[SPEED])


def _change(name: str, key: str, before: float, now: float) -> str:
    return f"{name}: {before:,} -> {now:,} {_UNITS[key]} ({now / before - 1:+.1%})"
