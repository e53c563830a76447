"""A property of a block, how it is proved, and the broken designs that it must catch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from amaranth.lib import wiring

import t3sim.rtl.blocks
from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.solver import Verdict, check
from t3sim.testbenches.formal.spec import Spec
from t3sim.testbenches.geometries import GEOMETRIES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "formal"


@dataclass(frozen=True)
class Search:
    """Search for a run of a broken design that violates its claim: in the `depth` cycles after a reset.

    In the first `skip` of them, while memories are cleared, no violation is looked for.
    """

    geometry: str | Geometry
    depth: int = 20
    skip: int = 0


@dataclass(frozen=True)
class Property:
    """A property of a block: `specify(spec, geometry)` makes the claims about `spec.design`.

    Proved by k-induction with k = `depth`, for runs of any length. With `bounded` only the first `depth` cycles after
    any reset are covered; `reason` says why, and why the geometry is not the default, if it is not.

    Each broken design must fail in every one of `searches`: the quickest first, and one on the geometry that is proved.
    If there is none, `unsearched` says why.
    """

    name: str
    block: str
    statement: str
    specify: Callable[[Spec, Geometry], None]
    broken: tuple[Broken, ...]
    geometry: str | Geometry = "default"
    depth: int = 2
    bounded: bool = False
    reason: str = ""
    searches: tuple[Search, ...] = (Search("small"), Search("default"))
    unsearched: str = ""
    build: Callable[[ModuleType, Geometry], wiring.Component] | None = None
    timeout_s: int = 600
    quick: bool = False  #: part of `make test`

    def spec(self, *, package: ModuleType = t3sim.rtl, geometry: str | Geometry | None = None,
             only: str | None = None) -> Spec:
        """Specify the design of `package`, which is `t3sim.rtl` or a broken copy, with this property's statements."""
        shape = geometry or self.geometry
        shape = GEOMETRIES[shape] if isinstance(shape, str) else shape
        build = self.build or (lambda package, geometry: package.blocks.BLOCKS[self.block](geometry))
        spec = Spec(build(package, shape), only=only)
        self.specify(spec, shape)
        return spec

    @property
    def slug(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in f"{self.block}-{self.name}")

    def prove(self) -> tuple[list[str], Verdict]:
        """Return the claims' names, and whether all of them hold."""
        spec = self.spec()
        return sorted(spec.claims), check(spec.rtlil(), FOLDER / self.slug, mode="bmc" if self.bounded else "prove",
                                        depth=self.depth, timeout_s=self.timeout_s)

    def catch(self, broken: Broken, search: Search) -> Verdict:
        """Look for a run of the broken design that violates the claim; the verdict must be `fail`."""
        with broken.load() as package:
            design = self.spec(package=package, geometry=search.geometry, only=broken.claim).rtlil()
        name = f"{self.slug}-broken-{self.broken.index(broken)}-{self.searches.index(search)}"
        return check(design, FOLDER / name, mode="bmc", depth=search.depth, skip=search.skip, timeout_s=self.timeout_s)
