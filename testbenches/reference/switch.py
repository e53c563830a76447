"""Model of `t3sim.rtl.switch.switch` as its GPUs see it: all that one sends arrives where it should, and nothing else.

Which parts of a sum meet in the switch depends on when they come; the order in which they are added, too. So the model
keeps what a GPU has been sent and has got, line by line, and compares the totals when nothing is under way. They are
the same bits only where no sum is rounded: a test sends small whole numbers.
"""

from collections import Counter, defaultdict, deque

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.reference.merge_table import Key, MergeTableModel
from t3sim.testbenches.reference.nmc_alu import AluDtype, AluOp, Operands, combine

_UPDATE = 2


class SwitchModel:
    """Packets on their way to each port. Those that are not added must differ, but for their order.

    A GPU sends a part of a sum once: a second one may be refused, which nobody sees at a port.
    """

    def __init__(self, geometry: Geometry, whole: int) -> None:
        self._geometry, self._whole, self._table = geometry, whole, MergeTableModel(geometry, whole)
        #: (port, sum): parts that were sent, that were got, and the columns
        self._sent: dict[tuple[int, Key], int] = Counter()
        self._got: dict[tuple[int, Key], int] = Counter()
        self._sent_column: dict[tuple[int, Key], int] = defaultdict(int)
        self._got_column: dict[tuple[int, Key], int] = defaultdict(int)
        #: (from, to): sums of which a part was sent
        self._of_source: dict[tuple[int, int], set[Key]] = defaultdict(set)
        #: (from, to): packets that are not added, in order, with the sums of which a part must be there before
        self._others: dict[tuple[int, int], deque[tuple[dict, set[Key]]]] = defaultdict(deque)
        self.merged = 0  #: parts that reached a GPU within another's packet

    @property
    def empty(self) -> bool:
        return +Counter(self._sent) == +Counter(self._got) and not any(self._others.values())

    def arrive(self, source: int, bound: dict) -> None:
        """Note a packet that a GPU sends to those whose bits are set in its mask."""
        packet = bound["packet"]
        for port in range(self._geometry.switch.ports):
            if bound["to"] >> port & 1 and packet["request"]["op"] == _UPDATE:
                key = self._table.key_of(packet)
                if key in self._of_source[source, port]:
                    raise ValueError(f"GPU {source} sends a second part of line {key.line:#x} to {port}")
                self._of_source[source, port].add(key)
                self._sent[port, key] += 1
                self._sent_column[port, key] = self._add(self._sent_column[port, key], packet)
            elif bound["to"] >> port & 1:
                untracked = packet["request"]["region"] == 0
                self._others[source, port].append((packet, set(self._of_source[source, port]) if untracked else set()))

    def leave(self, port: int, packet: dict) -> None:
        """Note a packet that reaches a GPU. Raises ValueError if none such was under way."""
        if packet["request"]["op"] != _UPDATE:
            heads = [queue for (_, to), queue in self._others.items() if to == port and queue and queue[0][0] == packet]
            if not heads:
                raise ValueError(f"port {port}: nobody has sent it {packet} next")
            if late := [key for key in heads[0].popleft()[1] if not self._got[port, key]]:
                raise ValueError(f"port {port}: {packet} overtakes what its GPU has sent before of line "
                                 f"{late[0].line:#x}")
            return
        name = port, self._table.key_of(packet)
        under_way = self._sent[name] - self._got[name]
        if not 0 < packet["parts"] <= min(under_way, self._whole):
            raise ValueError(f"port {port}: {packet['parts']} parts of line {name[1].line:#x}, where "
                             f"{under_way} are under way")
        self._got[name] += packet["parts"]
        self.merged += packet["parts"] - 1
        self._got_column[name] = self._add(self._got_column[name], packet)

    def check_sums(self) -> None:
        """Compare what each GPU has got with what it was sent; nothing may be under way."""
        wrong = [name for name, column in self._sent_column.items() if self._got_column[name] != column]
        if wrong or not self.empty:
            port, key = wrong[0] if wrong else (None, None)
            raise ValueError(f"port {port}: line {key and hex(key.line)} has another sum, or packets are missing")

    def _add(self, total: int, packet: dict) -> int:
        dtype = AluDtype(min(packet["dtype"], AluDtype.FP32))
        return combine(Operands(total, packet["column"], AluOp.ADD, dtype), self._geometry.switch.packet_bytes)
