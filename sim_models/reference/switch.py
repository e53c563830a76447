"""Model of `t3sim.rtl.switch.switch` as its GPUs see it: all that one sends arrives where it should, and nothing else.

Which parts of a sum meet in the switch depends on when they come; the order in which they are added, too. So the model
keeps what a GPU has been sent and has got, line by line, and compares the totals when nothing is under way. They are
the same bits only where no sum is rounded: a test sends small whole numbers.
"""

from collections import Counter, defaultdict, deque

from t3sim.rtl.geometry import Geometry

from .merge_table import Key
from .nmc_alu import AluDtype, AluOp, Operands, combine

_UPDATE = 2
COUNTERS = ("arrived", "left", "begun", "joined", "completed", "refused", "evicted", "expired")
#: As `t3sim.rtl.switch.packets.SwitchError`; a test compares the two.
ERRORS = {"none": 0, "overrun": 1, "nowhere": 2, "expired": 3, "refused": 4, "excess": 5}


class SwitchModel:
    """Packets on their way to each port. Those that are not added must differ, but for their order."""

    def __init__(self, geometry: Geometry, whole: int) -> None:
        self._geometry, self._whole = geometry, whole
        self._parts: dict[tuple[int, Key], int] = Counter()  # (port, sum): sent and not got
        self._sent: dict[tuple[int, Key], int] = defaultdict(int)  # columns
        self._got: dict[tuple[int, Key], int] = defaultdict(int)
        #: (from, to): packets that are not added, in order
        self._others: dict[tuple[int, int], deque[dict]] = defaultdict(deque)
        self.merged = 0  #: parts that reached a GPU within another's packet

    @property
    def empty(self) -> bool:
        return not any(self._parts.values()) and not any(self._others.values())

    def arrive(self, source: int, bound: dict) -> None:
        """Note a packet that a GPU sends to those whose bits are set in its mask."""
        packet = bound["packet"]
        for port in range(self._geometry.switch.ports):
            if bound["to"] >> port & 1 and packet["request"]["op"] == _UPDATE:
                name = port, self._key(packet)
                self._parts[name] += packet["parts"]
                self._sent[name] = self._add(self._sent[name], packet)
            elif bound["to"] >> port & 1:
                self._others[source, port].append(packet)

    def leave(self, port: int, packet: dict) -> None:
        """Note a packet that reaches a GPU. Raises ValueError if none such was under way."""
        if packet["request"]["op"] != _UPDATE:
            heads = [queue for (_, to), queue in self._others.items() if to == port and queue and queue[0] == packet]
            if not heads:
                raise ValueError(f"port {port}: nobody has sent it {packet} next")
            heads[0].popleft()
            return
        name = port, self._key(packet)
        if not packet["parts"] <= self._parts[name] or packet["parts"] > self._whole:
            raise ValueError(f"port {port}: {packet['parts']} parts of line {name[1].line:#x}, where "
                             f"{self._parts[name]} are under way")
        self._parts[name] -= packet["parts"]
        self.merged += max(0, packet["parts"] - 1)
        self._got[name] = self._add(self._got[name], packet)

    def check_sums(self) -> None:
        """Compare what each GPU has got with what it was sent; nothing may be under way."""
        wrong = [name for name, column in self._sent.items() if self._got[name] != column]
        if wrong or not self.empty:
            port, key = wrong[0] if wrong else (None, None)
            raise ValueError(f"port {port}: line {key and hex(key.line)} has another sum, or packets are missing")

    def _key(self, packet: dict) -> Key:
        return Key(packet["request"]["address"] >> self._geometry.switch.packet_shift, packet["dtype"])

    def _add(self, total: int, packet: dict) -> int:
        dtype = AluDtype(min(packet["dtype"], AluDtype.FP32))
        return combine(Operands(total, packet["column"], AluOp.ADD, dtype), self._geometry.switch.packet_bytes)
