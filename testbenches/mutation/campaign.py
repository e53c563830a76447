"""Fates of a block's mutants: caught, proved equivalent, ended by time, or survivors.

They are caught by the testbench, by a proof or by a unit test.

Each answer is kept in a file as it comes: a campaign that was interrupted goes on where it was.
"""

import json
import os
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from t3sim.base.cache import digest
from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.mutation.equivalence import compare
from t3sim.testbenches.mutation.model import Mutant, make_model
from t3sim.testbenches.mutation.proofs import prove
from t3sim.testbenches.mutation.simulate import simulate
from t3sim.testbenches.mutation.source.model import make_source_model
from t3sim.testbenches.mutation.source.unit import unit_test

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / "build" / "mutation"
_HARMLESS = Path(__file__).with_name("harmless.toml")

#: Each row: a block, and the geometry of its netlist. What protection adds is seen with it.
ROWS = {block: (block, "small") for block in BLOCKS} | {"tracker_protected": ("tracker", "protected")}
#: Mistakes in the source are looked for where there are several of everything.
SOURCE_ROWS = {block: (block, "several") for block in BLOCKS} | {
    "tracker_protected": ("tracker", "protected"), "gpu_top": ("gpu_top", "grouped")}

#: What the testbench is given: one seed for all mutants; for those that pass it, other seeds and longer runs.
_FIRST_SEEDS, _FIRST_LENGTH = (1,), 1
_MORE_SEEDS, _MORE_LENGTH = (2, 3), 2
_EQUIVALENCE_S, _PROOF_S = 20, 30
CAUGHT = ("test", "unit", "proof")


@dataclass(frozen=True)
class Fate:
    """Fate of a mutant: `what` is test, unit, proof, equivalent, time or survivor.

    It was caught by the testbench (test), a test of tests/rtl (unit) or a proof; or tests were ended by time, and
    nothing else noticed it.
    """

    block: str  #: the row's name
    mutant: Mutant
    what: str
    by: str  #: the test or claim that failed; of a survivor, why it cannot matter, if harmless.toml says so
    how: str  #: the failure's first line

    def to_json(self) -> dict:
        return asdict(self)


@dataclass(frozen=True)
class Harmless:
    block: str
    text: str
    why: str
    signal: str = ""  #: without the bit
    modes: tuple[str, ...] = ()
    port: str = ""  #: of the cell, with the bit

    def covers(self, block: str, mutant: Mutant) -> bool:
        return (self.block == block and self.text == mutant.text
                and self.signal in ("", mutant.signal.partition("[")[0]) and self.port in ("", mutant.port)
                and (not self.modes or mutant.mode in self.modes))


@cache
def harmless() -> list[Harmless]:
    entries = tomllib.loads(_HARMLESS.read_text(encoding="utf-8")).get("mutant", [])
    return [Harmless(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
            for entry in entries]


@cache
def _sources() -> str:
    """Name what decides whether a mutant is caught, besides the netlist."""
    files = sorted((ROOT / "testbenches").rglob("*.py"))
    return digest(*(path.read_text(encoding="utf-8") for path in files))


def fates(row: str, count: int, seed: int, step: Callable[[str, int, int], None], source: bool = False,
          geometry_name: str | None = None, only: str = "") -> list[Fate]:
    """Find out what becomes of each mutant.

    Calls `step(what is done, mutants that have their answer, mutants)`. `source`: mistakes in the source rather than in
    the netlist, those whose words match `only`.
    """
    step("building", 0, count)
    block, usual = (SOURCE_ROWS if source else ROWS)[row]
    geometry = GEOMETRIES[geometry_name or usual]
    drawn = block, geometry, count, seed
    model = make_source_model(*drawn, only) if source else make_model(*drawn)
    folder = _FOLDER / f"{row}-{digest(model.key, repr(geometry), _sources())}"
    found: dict[int, Fate] = {}
    ended: dict[int, Fate] = {}  #: by time, until something notices

    def left() -> list[Mutant]:
        return [mutant for mutant in model.mutants if mutant.number not in found]

    def test(name: str, seeds: tuple[int, ...], length: int) -> None:
        numbers = [mutant.number for mutant in left() if mutant.number not in ended]
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(simulate, model, geometry, numbers, seeds, length, folder / name)
            while not running.done():
                time.sleep(0.2)
                answered = sum((folder / name / f"{number}.json").exists() for number in numbers)
                step(name, len(found) + answered, len(model.mutants))
        for mutant in left():
            told = running.result().get(mutant.number, {"test": None})
            if told["test"]:
                found[mutant.number] = Fate(row, mutant, "test", told["test"], told["how"])
            elif told.get("ended"):
                ended[mutant.number] = Fate(row, mutant, "time", f"tb_{block}", told["how"])

    def each(name: str, ask: Callable[[Mutant], Fate | None]) -> None:
        (folder / name).mkdir(parents=True, exist_ok=True)

        def answer(mutant: Mutant) -> Fate | None:
            kept = folder / name / f"{mutant.number}.json"
            if not kept.exists():
                fate = ask(mutant)
                kept.write_text(json.dumps(fate and [fate.what, fate.by, fate.how]))
            told = json.loads(kept.read_text())
            return told and Fate(row, mutant, *told)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done, fate in enumerate(pool.map(answer, left()), start=1):
                step(name, len(found) + done, len(model.mutants))
                if fate:
                    found[fate.mutant.number] = fate

    def equivalent(mutant: Mutant) -> Fate | None:
        if mutant.number in ended:
            return None
        told = compare(model, mutant, _EQUIVALENCE_S)
        return Fate(row, mutant, "equivalent", "", "") if told.verdict == "equal" else None

    def proved(mutant: Mutant) -> Fate | None:
        claim = prove(model, geometry, mutant, folder / "proofs", _PROOF_S)
        return Fate(row, mutant, "proof", claim, "") if claim else None

    def noticed(mutant: Mutant) -> Fate | None:
        told = unit_test(block, mutant)
        return told and Fate(row, mutant, *told)

    test("tests", _FIRST_SEEDS, _FIRST_LENGTH)
    each("equivalence", equivalent)
    test("longer tests", _MORE_SEEDS, _MORE_LENGTH)
    if source:
        each("unit tests", noticed)
    else:
        each("proofs", proved)
    for mutant in left():
        why = next((entry.why for entry in harmless() if entry.covers(row, mutant)), "")
        found[mutant.number] = ended.get(mutant.number) or Fate(row, mutant, "survivor", why, "")
    return [found[mutant.number] for mutant in model.mutants]


def share(fates: list[Fate]) -> float:
    """Return the share of mutants that are caught, of those not proved equivalent.

    What was ended by time is not caught.
    """
    counted = [fate for fate in fates if fate.what != "equivalent"]
    return sum(fate.what in CAUGHT for fate in counted) / len(counted) if counted else 1.0
