"""Area, depth, Fmax and simulation speed by commit, in a file of one JSON object per line."""

import json
import subprocess
from pathlib import Path

from sim_models.errors import BadInput

from .measure import BlockArea

FILE = Path(__file__).resolve().parents[2] / "docs" / "history.jsonl"
SPEED = "cycles_per_second"  #: of the lockstep, as `t3 bench` measures it

_UNITS = {"gate_equivalents": "GE", "logic_depth": "gate delays", "fmax_mhz": "MHz", SPEED: "cycles/s"}


def entry(blocks: dict[str, BlockArea], library: str, cycles_per_second: float | None) -> dict:
    """Of the commit that is checked out, `-dirty` if the work tree differs."""
    told = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=FILE.parent,
                          capture_output=True, text=True, check=False)
    return {"commit": told.stdout.strip() or "unknown", "library": library,
            "blocks": {name: {"gate_equivalents": round(one.gate_equivalents), "logic_depth": round(one.logic_depth, 1),
                              "fmax_mhz": round(one.fpga.fmax_mhz, 1) if one.fpga and one.fpga.fmax_mhz else None}
                       for name, one in blocks.items()},
            SPEED: round(cycles_per_second) if cycles_per_second else None}


def read(path: Path = FILE) -> list[dict]:
    """Oldest first. Raises BadInput."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise BadInput(f"{path} is not a history: {error}") from None


def append(new: dict, path: Path = FILE) -> None:
    """A second entry of a commit takes the first one's place."""
    kept = [old for old in read(path) if old["commit"] != new["commit"]]
    path.write_text("".join(json.dumps(item) + "\n" for item in [*kept, new]), encoding="utf-8")


def changes(old: dict, new: dict) -> list[str]:
    """What differs, a line per figure; figures that one of them lacks are left out."""
    pairs = [(name, key, value, old["blocks"].get(name, {}).get(key))
             for name, figures in new["blocks"].items() for key, value in figures.items()]
    pairs.append(("lockstep", SPEED, new.get(SPEED), old.get(SPEED)))
    return [f"{name}: {before:,} -> {now:,} {_UNITS[key]} ({now / before - 1:+.1%})"
            for name, key, now, before in pairs if before and now is not None and now != before]
