"""Compares what came with what a reference model expects."""

from collections import deque

from t3sim.rtl.registers import ERRORS

_NAMES = {"code": {code: name for name, code in ERRORS.items()}, "op": dict(enumerate(("read", "store", "update"))),
          "source": dict(enumerate(("local", "remote", "dma")))}


def words(item: dict) -> str:
    """Write an item with codes by name and addresses in hexadecimal."""
    return "{" + ", ".join(f"{name}: {_word(name, value)}" for name, value in item.items()) + "}"


def _word(name: str, value) -> str:
    if isinstance(value, dict):
        return words(value)
    if name == "address":
        return f"{int(value):#x}"
    return str(_NAMES.get(name, {}).get(value, value))


class MismatchError(AssertionError):
    """Something else came than was expected; `items` are what came and what did not."""

    def __init__(self, message: str, *items: dict) -> None:
        super().__init__(message)
        self.items = items


def of_one_part(item: dict) -> dict:
    """Return a request or packet of a GPU without its count of parts, which only a switch makes more than one."""
    if item.get("more"):
        raise MismatchError(f"a GPU sends one part of a sum: {words(item)}", item)
    return {name: value for name, value in item.items() if name != "more"}


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
        """Expect an item: a dict, or a NamedTuple with the fields' names."""
        self._expected.append(_as_dict(item))

    def check(self, item) -> None:
        item = _as_dict(item)
        if not self._expected:
            raise MismatchError(f"{self._name}: {words(item)} was not expected", item)
        expected = self._expected.popleft()
        if item != expected:
            raise MismatchError(f"{self._name}, item {self.matched}: expected {words(expected)}, got {words(item)}",
                                item, expected)
        self.matched += 1

    def reset(self) -> None:
        self._expected.clear()

    def check_empty(self) -> None:
        if self._expected:
            first = self._expected[0]
            raise MismatchError(f"{self._name}: {len(self._expected)} never came, first {words(first)}", first)


def _as_dict(item) -> dict:
    return item if isinstance(item, dict) else item._asdict()
