"""What a study file says: a command, the settings that its points share, those that vary, and what to plot."""

import itertools
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from t3sim.errors import BadInput, shown
from t3sim.sweeps.settings import MACHINE_KEY, Scalar, Settings

#: Studies that come with the package, by name.
STUDIES = ("crossover", "lateness", "link-bandwidth", "starvation-limit", "tracker-ways")
LARGEST = 100_000  #: points


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Plot(_Part):
    """Lines of one or more results over a setting."""

    x: str  #: a setting
    y: list[str] = Field(min_length=1)  #: columns of the results
    series: str | None = None  #: a setting; a line for each of its values
    title: str = ""
    label: str = ""  #: of the y axis
    scale: float = 1.0  #: results are divided by it
    log_x: bool = False


class Study(_Part):
    """A study file."""

    title: str
    command: Literal["run", "dma", "collective", "end-to-end"]
    options: dict[str, Scalar] = {}  #: of the command, without dashes; every point has them
    machine: dict[str, Any] = {}  #: what differs from the machine in `options`, as in a machine file
    grid: dict[str, list[Scalar]] = {}  #: every combination of these settings
    points: list[dict[str, Scalar]] = []  #: these, each with every combination of the grid
    plots: list[Plot] = []

    @property
    def varied(self) -> list[str]:
        """The settings in which points differ, in the order of the file."""
        return list(dict.fromkeys([*(name for point in self.points for name in point), *self.grid]))

    def settings(self) -> Iterator[Settings]:
        """Each point's, all settings of it."""
        shared = {**self.options, **_dotted(MACHINE_KEY, self.machine)}
        for point in self.points or [{}]:
            for values in itertools.product(*self.grid.values()):
                yield Settings(self.command, {**shared, **point, **dict(zip(self.grid, values))})


def load_study(name_or_path: str) -> Study:
    """Load a study of the package by name, or a TOML file. Raises BadInput in one line that names key and value."""
    named = name_or_path in STUDIES
    source: Traversable = (resources.files(__package__) / "studies" / f"{name_or_path}.toml" if named
                           else Path(name_or_path))
    where = f"study {shown(name_or_path)}"
    try:
        study = Study.model_validate(tomllib.loads(source.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"{where} is neither a file nor one of {', '.join(STUDIES)}") from None
    except OSError as error:
        raise BadInput(f"{where} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in fault["loc"] if part not in ("str", "int", "float", "bool"))
        raise BadInput(f"{where}: {place} = {shown(fault.get('input'))}: "
                       f"{fault['msg'][0].lower()}{fault['msg'][1:]}") from None
    except RecursionError:
        raise BadInput(f"{where} is not TOML: it is nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{where} is not TOML: {str(error)[:80]}") from None
    _check(study, where)
    return study


def _check(study: Study, where: str) -> None:
    count = max(1, len(study.points))
    for name, values in study.grid.items():
        count *= len(values)
        if not values:
            raise BadInput(f"{where}: grid.{name} is empty: at least one value is needed")
        if len(set(values)) < len(values):
            raise BadInput(f"{where}: grid.{name} has a value twice")
    if count > LARGEST:
        raise BadInput(f"{where} has {count:,} points: up to {LARGEST:,} are allowed")
    for point in study.points:
        if twice := set(point) & set(study.grid):
            raise BadInput(f"{where}: {min(twice)} is in points and in grid")
    for plot in study.plots:
        for setting in filter(None, (plot.x, plot.series)):
            if setting not in study.varied:
                raise BadInput(f"{where}: plots has {shown(setting)}, which does not vary: allowed are "
                               f"{', '.join(study.varied) or 'none'}")


def _dotted(prefix: str, content: dict[str, Any]) -> dict[str, Scalar]:
    """`{"tracker": {"ways": 8}}` as `machine.tracker.ways`."""
    found: dict[str, Scalar] = {}
    for name, value in content.items():
        key = f"{prefix}.{name}"
        found |= _dotted(key, value) if isinstance(value, dict) else {key: value}
    return found
