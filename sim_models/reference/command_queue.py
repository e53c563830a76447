"""Transaction-level reference of `t3sim.rtl.command_queue`: what commands in memory do, in their order."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

COPY, POLL, SIGNAL, TIMESTAMP, ADD = range(5)
LINE_BYTES = 64


class Command(NamedTuple):
    """Fields of `t3sim.rtl.layouts.queue_command`."""

    value: int
    op: int
    address: int
    region: int
    wf: int
    wg: int


class CommandQueueModel:
    """A ring of `places` commands in a memory of lines by their addresses."""

    def __init__(self, memory: Mapping[int, Mapping[str, int]], base: int, places: int):
        self._memory, self._base, self._places = memory, base, places
        self.taken = 0  #: commands done
        self.command: Command | None = None  #: that is being done

    @property
    def fetches(self) -> int:
        """Address of the next command."""
        return self._base + self.taken % self._places * LINE_BYTES

    def fetched(self) -> Command:
        """Start the next command."""
        assert self.command is None, "a command is fetched while another one is not done"
        self.command = Command(**self._memory[self.fetches])
        return self.command

    def looked(self, value: int) -> bool:
        """Note what a poll saw; return whether it is done."""
        assert self.command is not None and self.command.op == POLL
        if value == self.command.value:
            self._done()
            return True
        return False

    def copied(self, copy: Mapping[str, int]) -> None:
        """Note that a copy was taken."""
        assert self.command is not None and self.command.op == COPY
        assert copy == {name: getattr(self.command, name) for name in ("address", "region", "wf", "wg")}
        self._done()

    def wrote(self, address: int, value: int, adds: bool, cycles: Iterator[int] | range) -> None:
        """Note that a word was written, or added; a timestamp is of one of `cycles`."""
        assert self.command is not None and self.command.op in (SIGNAL, TIMESTAMP, ADD)
        assert address == self.command.address and adds == (self.command.op == ADD)
        assert value in cycles if self.command.op == TIMESTAMP else value == self.command.value
        self._done()

    def _done(self) -> None:
        self.taken, self.command = self.taken + 1, None
