"""Designs with one line changed: what a property must catch."""

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType

RTL = Path(__file__).resolve().parents[2] / "rtl"
_numbers = count()


@dataclass(frozen=True)
class Broken:
    """A copy of `rtl/` in which `old`, which must occur once in `file`, reads `new`."""

    what: str  #: the mistake, in a few words
    claim: str  #: the claim that must fail on it
    file: str  #: in rtl/
    old: str
    new: str

    def text(self) -> str:
        """Return the changed file. Raises ValueError if the line is not in it once."""
        source = (RTL / self.file).read_text(encoding="utf-8")
        if source.count(self.old) != 1:
            raise ValueError(f"{self.what}: rtl/{self.file} has {self.old!r} {source.count(self.old)} times")
        return source.replace(self.old, self.new)

    @contextmanager
    def load(self) -> Iterator[ModuleType]:
        """Load the package, complete, under a name of its own."""
        text = self.text()
        name = f"broken_rtl_{next(_numbers)}"
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "rtl"
            shutil.copytree(RTL, package, ignore=shutil.ignore_patterns("__pycache__"))
            (package / self.file).write_text(text, encoding="utf-8")
            for file in package.rglob("*.py"):
                source = file.read_text(encoding="utf-8")
                file.write_text(source.replace("from t3sim.rtl", f"from {name}"), encoding="utf-8")
            spec = importlib.util.spec_from_file_location(name, package / "__init__.py",
                                                          submodule_search_locations=[str(package)])
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            importlib.import_module(f"{name}.blocks")
            try:
                yield module
            finally:
                for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
                    del sys.modules[loaded]
