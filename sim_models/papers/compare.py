"""Two campaigns' `results.json`, value by value: what moved between them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from t3sim.base.bounded import read_json, reading
from t3sim.base.errors import BadInput

#: Keys that say what made the results, not what they are.
PROVENANCE = ("versions", "commit")
ABSENT = "absent"


class ChangedValue(NamedTuple):
    """One value that differs; `ABSENT` where a campaign does not have it."""

    where: str  #: keys and indices from the file's root, joined by dots
    before: Any
    after: Any

    @property
    def relative(self) -> float | None:
        """The move of a number as a fraction of what it was; None if it is no number or was 0."""
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool)
                      for value in (self.before, self.after))
        return (self.after - self.before) / self.before if numbers and self.before else None


def load_results(folder: Path) -> dict[str, Any]:
    """Read `results.json` of a campaign's folder. Raises BadInput."""
    path = folder / "results.json"
    with reading(str(path), "a campaign's results"):
        try:
            content = read_json(path, nan=True)
        except FileNotFoundError:
            raise BadInput(f"{folder} has no results.json: a folder of `t3 reproduce` is needed") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} is not a campaign's results: an object is expected")
    return content


def compare_results(before: dict[str, Any], after: dict[str, Any]) -> list[ChangedValue]:
    """List every value that two results differ in, to the last bit; what made them (versions, commit) is left out."""
    return list(_differences("", *({key: value for key, value in results.items() if key not in PROVENANCE}
                                   for results in (before, after))))


def count_values(results: Any) -> int:
    """Count the values that a comparison looks at."""
    if isinstance(results, dict):
        return sum(count_values(value) for key, value in results.items() if key not in PROVENANCE)
    return sum(map(count_values, results)) if isinstance(results, list) else 1


def _differences(where: str, before: Any, after: Any) -> Iterator[ChangedValue]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _differences(f"{where}.{key}" if where else key, before.get(key, ABSENT),
                                    after.get(key, ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            yield from _differences(f"{where}.{index}", *(values[index] if index < len(values) else ABSENT
                                                         for values in (before, after)))
    elif type(before) is not type(after) or (before != after and not _both_nan(before, after)):
        yield ChangedValue(where, before, after)


def _both_nan(before: Any, after: Any) -> bool:
    return isinstance(before, float) and math.isnan(before) and math.isnan(after)
