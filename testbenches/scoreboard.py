"""Compares what came with what a reference model expects."""

from collections import deque


class Scoreboard:
    """Items that must come in this order, all of them and no others."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._expected: deque[dict] = deque()
        self.matched = 0

    @property
    def empty(self) -> bool:
        return not self._expected

    @property
    def left(self) -> int:
        return len(self._expected)

    def expect(self, item) -> None:
        """A dict, or a NamedTuple with the fields' names."""
        self._expected.append(_as_dict(item))

    def check(self, item) -> None:
        item = _as_dict(item)
        assert self._expected, f"{self._name}: {item} was not expected"
        expected = self._expected.popleft()
        assert item == expected, f"{self._name}, item {self.matched}: expected {expected}, got {item}"
        self.matched += 1

    def reset(self) -> None:
        self._expected.clear()

    def check_empty(self) -> None:
        assert not self._expected, f"{self._name}: {len(self._expected)} never came, first {self._expected[0]}"


def _as_dict(item) -> dict:
    return item if isinstance(item, dict) else item._asdict()
