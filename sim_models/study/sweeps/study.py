"""Study file: a scenario or a command, the settings that vary, and what to plot."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from t3sim.base.bounded import read_toml, reading
from t3sim.base.errors import BadInput, choices, shown
from t3sim.mechanisms.table import TECHNIQUES
from t3sim.study.scenario.scenario import Scenario
from t3sim.study.scenario.short_names import SHORT_NAMES
from t3sim.study.sweeps.point import MACHINE_KEY, Scalar

#: Studies that come with the package, by name.
STUDIES = ("arbiters", "crossover", "direct", "granularity", "lateness", "link-bandwidth", "occupancy", "regimes",
           "regret", "regret-repeated", "starvation-limit", "tiles-gpus", "tiles-link", "tracker-ways", "unlike")
LARGEST = 100_000  #: points
POINTS = "points"  #: what `Compare.over` calls the points of a study
#: Commands whose answer is a result, and the same each time: not those that record, keep, show, or measure this host.
COMMANDS = ("run", "dma", "collective", "end-to-end", "area", "hbm-replay", "explain")


_Value = bool | Annotated[int, Field(ge=-1 << 63, lt=1 << 63)] | float | str  #: a table's columns have 64 bits


class _StudyPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Plot(_StudyPart):
    """Lines of one or more results over a setting."""

    x: str  #: a setting
    y: list[str] = Field(min_length=1)  #: columns of the results
    series: str | None = None  #: a setting; a line for each of its values
    title: str = ""
    label: str = ""  #: of the y axis
    scale: float = Field(default=1.0, gt=0)  #: results are divided by it
    log_x: bool = False


class Map(_StudyPart):
    """Which of several results is least, at every pair of two settings."""

    x: str  #: a setting
    y: str  #: another
    least_of: list[str] = Field(min_length=2)  #: columns of the results
    title: str = ""


class Draw(_StudyPart):
    """Points drawn at random, each with one value of every setting; the same seed draws the same."""

    count: int = Field(ge=1, le=LARGEST)
    seed: int = 0
    settings: dict[str, list[_Value]] = Field(min_length=1)

    def points(self) -> list[dict[str, Scalar]]:
        """Return `count` points that differ."""
        rng, points = random.Random(self.seed), {}
        while len(points) < self.count:
            values = tuple(rng.choice(values) for values in self.settings.values())
            points.setdefault(values, dict(zip(self.settings, values)))
        return list(points.values())


class Compare(_StudyPart):
    """Which value of a setting serves best over all cases: the points that differ in nothing else are one case.

    With `average` they may differ in that setting, too: its values are repetitions, and a case's result is the mean.
    """

    over: str  #: the setting, or "points": each of the study's points is a value, called as what it sets
    by: str  #: a column of the results, of which less is better
    against: _Value  #: that value of the setting which no other should lose to
    within_percent: float = Field(default=1.5, ge=0)  #: of the best, to count as good
    slower_percent: float = Field(default=0.5, ge=0)  #: than `against`, to count as no loss
    average: str | None = None  #: a setting of the grid that should not matter, as a link's latency 1 ns longer


class Regimes(_StudyPart):
    """Regimes in which a setting matters: its values' loss against a bound, along settings and results."""

    over: str  #: the setting
    by: str  #: a column of the results, of which less is better
    bound: str  #: a column of the results that it cannot be less than, or hardly
    along: list[str] = Field(min_length=1, max_length=12)  #: settings, or columns of the results


class Study(_StudyPart):
    """A study file."""

    title: str
    command: Literal[COMMANDS] = "run"  # type: ignore[valid-type]
    scenario: dict[str, Any] = {}  #: of command run: its sections, which stand beside those of the study
    options: dict[str, _Value] = {}  #: of the command, without dashes; every point has them
    machine: dict[str, Any] = {}  #: what differs from the machine in `options`, as in a machine file
    grid: dict[str, list[_Value]] = {}  #: every combination of these settings
    points: list[dict[str, _Value]] = []  #: these, each with every combination of the grid
    draw: Draw | None = None  #: these too, each with every combination of the grid
    plots: list[Plot] = []
    maps: list[Map] = []
    compare: Compare | None = None
    regimes: Regimes | None = None

    @property
    def varied_settings(self) -> list[str]:
        """The settings in which points differ, in the order of the file."""
        draw_settings = self.draw.settings if self.draw else ()
        return list(dict.fromkeys([*(name for point in self.points for name in point), *draw_settings, *self.grid]))

    @property
    def compared_settings(self) -> list[str]:
        """The settings whose values are compared."""
        if self.compare and self.compare.over != POINTS:
            return [self.compare.over]
        return list(dict.fromkeys(name for point in self.points for name in point))

    def columns(self) -> Iterator[tuple[str, str]]:
        """Return the columns of the results that the file names, and where."""
        yield from (("plots.y", column) for plot in self.plots for column in plot.y)
        yield from (("maps.least_of", column) for winner_map in self.maps for column in winner_map.least_of)
        if self.compare:
            yield "compare.by", self.compare.by
        if self.regimes:
            yield "regimes.by", self.regimes.by
            yield "regimes.bound", self.regimes.bound
            yield from (("regimes.along", name) for name in self.regimes.along if name not in self.varied_settings)

    @property
    def scenario_settings(self) -> dict[str, Scalar]:
        """The settings of its scenario's sections, by their keys."""
        return _dotted("", self.scenario)

    @property
    def shared_settings(self) -> dict[str, Scalar]:
        """The settings that all points have."""
        return {**self.scenario_settings, **self.options, **_dotted(MACHINE_KEY, self.machine)}

    def points_settings(self) -> Iterator[dict[str, Scalar]]:
        """Give the settings of each point, with those that all points share."""
        for point in [*self.points, *(self.draw.points() if self.draw else ())] or [{}]:
            for values in itertools.product(*self.grid.values()):
                yield {**self.shared_settings, **point, **dict(zip(self.grid, values))}

    def place_of(self, error: BadInput) -> str:
        """Say in which section of the file the key stands that a message begins with: `grid.tp: `, or nothing."""
        draw_settings = self.draw.settings if self.draw else {}
        parts = {"options": self.options, "grid": self.grid, "draw.settings": draw_settings,
                 "points": {name: 0 for point in self.points for name in point}}
        key = str(error).partition(" ")[0].strip("':")
        for part, settings in parts.items():
            for name in settings:
                if key in (name, SHORT_NAMES.get(name)):
                    return f"{part}.{name}: "
        return ""


def value_of(point: Mapping[str, Scalar | None], settings: Sequence[str]) -> Scalar:
    """Return what a point or a row has of the compared settings; of several, the values with spaces between."""
    values = [point[name] for name in settings if point.get(name) is not None]
    return values[0] if len(settings) == 1 else " ".join(map(str, values))


def load_study(name_or_path: str) -> Study:
    """Load a study of the package by name, or a TOML file. Raises BadInput in one line that names key and value."""
    is_packaged = name_or_path in STUDIES
    source: Traversable = (resources.files(__package__) / "studies" / f"{name_or_path}.toml" if is_packaged
                           else Path(name_or_path))
    where = f"study {shown(name_or_path)}"
    with reading(where, "TOML"):
        try:
            content = read_toml(source)
        except (FileNotFoundError, NotADirectoryError):
            raise BadInput(f"{where} is neither a file nor one of {', '.join(STUDIES)}") from None
    if "command" not in content:
        content.setdefault("title", Path(name_or_path).stem)
    if "scenario" in content:
        raise BadInput(f"{where}: scenario is unknown: the sections of a scenario are next to those of the study")
    if content.get("command", "run") == "run":
        content["scenario"] = {name: content.pop(name) for name in Scenario.model_fields
                               if name in content and not (name == MACHINE_KEY and isinstance(content[name], dict))}
    try:
        study = Study.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{where}: {_fault_text(error)}") from None
    _check(study, where)
    return study


def _fault_text(error: ValidationError) -> str:
    """Explain the first fault: what is wrong with which key, and what is allowed."""
    faults = error.errors(include_url=False)
    first, *others = ([part for part in fault["loc"] if part not in ("str", "int", "float", "bool")]
                      for fault in faults)
    fault, place = faults[0], ".".join(map(str, first))
    if fault["type"] == "missing":
        return f"{place} is missing"
    if fault["type"] == "extra_forbidden":
        parts = {"plots": Plot, "maps": Map, "draw": Draw, "compare": Compare, "regimes": Regimes}
        part = parts.get(first[0] if first[1:] else "", Study)
        return f"{place} is unknown: allowed are {choices(str(first[-1]), part.model_fields)}"
    if first in others:  # what may be of several types has a fault for each
        return f"{place} = {shown(fault['input'])}: a word, a finite number of 64 bits, true or false is allowed"
    return f"{place} = {shown(fault.get('input'))}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _check(study: Study, where: str) -> None:
    draw_settings = study.draw.settings if study.draw else {}
    for part, settings in (("grid", study.grid), ("draw.settings", draw_settings)):
        for name, values in settings.items():
            if not values:
                raise BadInput(f"{where}: {part}.{name} is empty: at least one value is needed")
            if len(set(values)) < len(values):
                raise BadInput(f"{where}: {part}.{name} has a value twice")
    if study.draw and study.draw.count > (limit := math.prod(map(len, draw_settings.values()))):
        raise BadInput(f"{where}: draw.count = {study.draw.count}: its settings make {limit} different points")
    points = len(study.points) + (study.draw.count if study.draw else 0)
    count = max(1, points) * math.prod(map(len, study.grid.values()))
    if count > LARGEST:
        raise BadInput(f"{where} has {count:,} points: up to {LARGEST:,} are allowed")
    names_by_key = {part: {SHORT_NAMES.get(name, name): name for name in settings} for part, settings in (
        ("scenario", study.scenario_settings), ("options", study.options), ("grid", study.grid),
        ("draw", draw_settings), *((f"points.{number}", point) for number, point in enumerate(study.points)))}
    for part, second_part in (*((part, "grid") for part in names_by_key if part != "grid"), ("scenario", "options")):
        if repeated_keys := names_by_key[part].keys() & names_by_key[second_part].keys():
            key = min(repeated_keys)
            raise BadInput(f"{where}: {names_by_key[part][key]} is in {part.partition('.')[0]} and in {second_part}")
    for plot in study.plots:
        for setting in filter(None, (plot.x, plot.series)):
            if setting not in study.varied_settings:
                raise BadInput(f"{where}: plots has {shown(setting)}, which does not vary: allowed are "
                               f"{', '.join(study.varied_settings) or 'none'}")
    for part, column in study.columns():
        kind, _, name = column.partition(".")
        name = name.partition(".")[0]
        cycle_level = (study.command == "run" and study.shared_settings.get("level") != "event"
                       and "level" not in study.varied_settings)
        if cycle_level and kind in ("techniques", "speedup", "overlap_efficiency") and (
                name not in TECHNIQUES):
            raise BadInput(f"{where}: {part} names {shown(column)}: allowed techniques are "
                           f"{choices(name, TECHNIQUES)}")
    for winner_map in study.maps:
        if len(set(winner_map.least_of)) < len(winner_map.least_of):
            raise BadInput(f"{where}: maps.least_of has a column twice")
        if {winner_map.x, winner_map.y} != set(study.varied_settings) or winner_map.x == winner_map.y:
            raise BadInput(f"{where}: maps has x = {shown(winner_map.x)} and y = {shown(winner_map.y)}: they must be "
                           f"the study's two settings, which are {', '.join(study.varied_settings) or 'none'}")
    if study.compare:
        of_points = study.compare.over == POINTS
        values = ([value_of(point, study.compared_settings) for point in study.points] if of_points
                  else study.grid.get(study.compare.over, []))
        if study.compare.against not in values:
            raise BadInput(f"{where}: compare.against = {shown(study.compare.against)} is no value of "
                           f"{POINTS if of_points else f'grid.{study.compare.over}'}: allowed are "
                           f"{', '.join(map(str, values)) or 'none'}")
        other_settings = [name for name in study.grid if name != study.compare.over]
        if study.compare.average not in (None, *other_settings):
            raise BadInput(f"{where}: compare.average = {shown(study.compare.average)} is no other setting of the "
                           f"grid: allowed are {', '.join(other_settings) or 'none'}")


    if study.regimes and study.regimes.over not in study.grid:
        raise BadInput(f"{where}: regimes.over = {shown(study.regimes.over)} is not a setting of the grid: allowed are "
                       f"{', '.join(study.grid) or 'none'}")


def _dotted(prefix: str, content: dict[str, Any]) -> dict[str, Scalar]:
    """Write `{"tracker": {"ways": 8}}` as `machine.tracker.ways`, and words of a list with commas between."""
    settings: dict[str, Scalar] = {}
    for name, value in content.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            settings |= _dotted(key, value)
        else:
            settings[key] = ",".join(map(str, value)) if isinstance(value, list) else value
    return settings
