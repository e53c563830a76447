"""The DRAM of a memory channel: a queue that reorders and retires late."""

from collections.abc import Callable

from t3sim.testbenches.bench import Bench
from t3sim.testbenches.monitors import StreamMonitor
from t3sim.testbenches.reference.memory_channel import is_tracked


class Dram:
    """Serves one channel's `dram`, `occupancy` and `retirement`; `index`, say `[3]`, chooses among arrays of them."""

    def __init__(self, bench: Bench, index: str = "", on_command: Callable[[dict], None] | None = None,
                 on_leave: Callable[[dict], None] | None = None) -> None:
        self._bench, self._on_command, self._on_leave = bench, on_command, on_leave
        self._occupancy, self._retirement = bench[f"occupancy{index}"], bench[f"retirement{index}"]
        self._entries = bench.geometry.channel.queue_entries
        self.queue: list[dict] = []  #: commands that wait
        self.pending: list[int] = []  #: buckets of tracked writes that are performed and not yet reported
        self.least = 0  #: occupancy that is shown though the queue is shorter
        self.fill = 0  #: nothing leaves until the queue was full for so many cycles
        self._leaves, self.retires = bench.pause(), bench.pause()
        self._commands = StreamMonitor(bench, f"dram{index}", self._accept)
        self.takes, self._commands.pause = self._commands.pause, self._full()
        self.retired: int | None = None  #: bucket reported in this cycle
        bench.add(self)

    @property
    def idle(self) -> bool:
        return not self.queue and not self.pending

    def _full(self):
        while True:
            yield next(self.takes) or len(self.queue) >= self._entries

    def _accept(self, command: dict) -> None:
        self.queue.append(command)
        if self._on_command:
            self._on_command(command)

    def drive(self) -> None:
        # A command that leaves counts until the next cycle.
        rng = self._bench.rng
        self._occupancy.write(max(self.least, len(self.queue)))
        self.retired = None
        if self.pending and not next(self.retires):
            self.retired = self.pending.pop(rng.randrange(len(self.pending)))
        self._retirement.write({"valid": self.retired is not None, "bucket": self.retired or 0})
        if self.fill and len(self.queue) >= self._entries:
            self.fill -= 1
        if self.queue and not self.fill and not next(self._leaves):
            command = self.queue.pop(rng.randrange(len(self.queue)))
            if is_tracked(command["request"]):
                self.pending.append(command["bucket"])
            if self._on_leave:
                self._on_leave(command)

    def sample(self) -> None:
        pass

    def reset(self) -> None:
        self.queue.clear()
        self.pending.clear()
        self._retirement.write(0)
