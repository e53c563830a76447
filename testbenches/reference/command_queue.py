"""Transaction-level reference of `t3sim.rtl.dma.command_queue`: what commands in memory do, in their order."""

from collections.abc import Iterator, Mapping

from t3sim.rtl.queue_commands import ADD, COPY, POLL, SIGNAL, TIMESTAMP, Command

LINE_BYTES, WORD_BYTES = 64, 4


def refusal(command: Command, words: tuple[int, int]) -> str | None:
    """Return the error of a command that is not done, as in `t3sim.rtl.registers.ERRORS`.

    `words`: first byte, and one past the last, of what may be polled and written; of both only the line counts.
    """
    if command.op > ADD:
        return "command_unknown"
    if command.op == COPY:
        return None
    if command.address % (LINE_BYTES if command.op == POLL else WORD_BYTES):
        return "word_misaligned"
    first, end = (place // LINE_BYTES for place in words)
    return None if first <= command.address // LINE_BYTES < end else "word_out_of_range"


class CommandQueueModel:
    """A ring of `places` commands in a memory of lines by their addresses."""

    def __init__(self, memory: Mapping[int, Mapping[str, int]], base: int, places: int,
                 words: tuple[int, int] = (0, 1 << 64)):
        self._memory, self._base, self._places, self._words = memory, base, places, words
        self.taken = 0  #: commands done
        self.command: Command | None = None  #: that is being done

    @property
    def fetches(self) -> int:
        """Address of the next command."""
        return self._base + self.taken % self._places * LINE_BYTES

    def fetched(self) -> str | None:
        """Start the next command, or return the error with which it is refused."""
        assert self.command is None, "a command is fetched while another one is not done"
        command = Command(**self._memory[self.fetches])
        error = refusal(command, self._words)
        self.command = None if error else command
        return error

    def forgotten(self) -> None:
        """Note that the queue halts: what was read and is not done is read again."""
        assert self.command is not None and self.command.op != COPY, "an engine was offered it"
        self.command = None

    def skipped(self) -> None:
        """Drop the next command, which was refused."""
        assert self.command is None
        self.taken += 1

    def takes_doorbell(self, place: int, written: int) -> bool:
        """Return whether a doorbell after `written` commands is lawful; places are modulo twice the ring's."""
        behind, ahead = ((one - self.taken) % (2 * self._places) for one in (written, place))
        return behind <= ahead <= self._places

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
