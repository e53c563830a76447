"""C++ of a graph's words: what a node computes."""

from collections import defaultdict
from collections.abc import Iterator

from t3sim.rtlsim.graph import ONE, WORD, ZERO, Graph, Node, Value, bit_of, node_of

_MASK = (1 << WORD) - 1


def mask(width: int) -> str:
    return f"0x{(1 << width) - 1:x}u" if width <= 32 else f"0x{(1 << width) - 1:x}ull"


def kind(width: int) -> str:
    """Return the type in which this many bits are kept."""
    return next((f"std::uint{bits}_t" for bits in (8, 16, 32, 64) if width <= bits), local(width))


def local(width: int) -> str:
    """Return the type of variables of this many bits."""
    return "std::uint64_t" if width <= WORD else "wide_t" if width <= 2 * WORD else f"Big<{-(-width // WORD)}>"


class Expressions:
    """Writes values of a graph; `name` gives a node's."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def name(self, node: int) -> str:
        return f"v{node}"

    def runs(self, value: Value) -> Iterator[tuple[int, int, int, int]]:
        """Yield neighbours in one node, constants, and copies of one bit: place, node, first bit, width.

        Of constants the first bit is the number, of copies it is negative.
        """
        i = 0
        while i < len(value):
            j = i + 1
            if value[i] <= ONE:
                while j < len(value) and value[j] <= ONE:
                    j += 1
                yield i, 0, sum(value[k] << (k - i) for k in range(i, j)), j - i
            elif j < len(value) and value[j] == value[i]:
                while j < len(value) and value[j] == value[i]:
                    j += 1
                yield i, node_of(value[i]), ~bit_of(value[i]), j - i
            else:
                while j < len(value) and value[j] == value[j - 1] + 1 and not (
                        j + 1 < len(value) and value[j + 1] == value[j]):
                    j += 1
                yield i, node_of(value[i]), bit_of(value[i]), j - i
            i = j

    def word(self, value: Value) -> str:
        """Write a value as a number of the type that `local` gives for its bits."""
        first = node_of(value[0]) if value else 0
        if first and bit_of(value[0]) == 0 and len(value) == self.graph.nodes[first].width and value == tuple(
                value[0] + i for i in range(len(value))):
            return self.name(first)
        words = self.words(value) if len(value) > WORD else []
        if len(words) == 2:
            return f"((wide_t){words[1]} << {WORD} | {words[0]})"
        if words:
            return f"{local(len(value))}{{{{{', '.join(words)}}}}}"
        parts = []
        for at, node, first, width in self.runs(value):
            if node == 0:
                if first:
                    parts.append(self.literal(first << at, False))
                continue
            if first < 0:
                text = f"(-{self.piece(node, ~first, 1)} & {mask(width)})"
            else:
                text = self.piece(node, first, width)
            parts.append(f"((std::uint64_t){text} << {at})" if at else text)
        return f"({' | '.join(parts)})" if len(parts) > 1 else parts[0] if parts else "0ull"

    def piece(self, node: int, first: int, width: int) -> str:
        """Write up to 64 bits of a node."""
        name, whole = self.name(node), self.graph.nodes[node].width
        if whole > 2 * WORD:
            return f"{name}.get({first}, {width})"
        text = f"({name} >> {first})" if first else name
        if whole > WORD:
            text = f"(std::uint64_t){text}"
        return f"({text} & {mask(width)})" if first + width < whole or whole > WORD > width else text

    @staticmethod
    def literal(number: int, wide: bool) -> str:
        if number > _MASK:
            return f"((wide_t)0x{number >> WORD:x}ull << 64 | 0x{number & _MASK:x}ull)"
        return f"(wide_t)0x{number:x}ull" if wide else f"0x{number:x}ull"

    def words(self, value: Value) -> list[str]:
        return [self.word(value[at:at + WORD]) for at in range(0, len(value), WORD)]

    def signed(self, value: Value) -> str:
        """Write up to 128 bits as a signed number."""
        size, number = (WORD, "std::int64_t") if len(value) <= WORD else (2 * WORD, "signed_wide_t")
        unused = size - len(value)
        text = f"({local(size)}){self.word(value)}"
        return f"(({number})({text} << {unused}) >> {unused})" if unused else f"(({number}){text})"

    def cut(self, text: str, width: int) -> str:
        """Drop what is above the width."""
        if width > 2 * WORD:
            return f"({text}).cut({width})"
        if width in (WORD, 2 * WORD):
            return text
        return f"({text}) & {self.literal((1 << width) - 1, width > WORD)}"

    def node(self, number: int) -> str:
        """Write what a node computes."""
        node = self.graph.nodes[number]
        op, args, width = node.op, node.args, node.width
        if op in ("&", "|", "^"):
            return f"{self.word(args[0])} {op} {self.word(args[1])}"
        if op == "~":
            return f"{self.word(args[0])} ^ {mask(width)}"
        if op in ("+", "-", "*"):
            wide = f"({local(width)})"
            first = f"{wide}{self.word(args[0])} {op} " if len(args) == 2 else f"-{wide}"
            return self.cut(first + self.word(args[-1]), width)
        if op in ("u//", "u%"):
            return f"{self.word(args[1])} ? {self.word(args[0])} {op[1]} {self.word(args[1])} : 0"
        if op in ("s//", "s%"):  # rounded down, as in Python
            rest = "a % b && (a < 0) != (b < 0)"
            result = f"a / b - ({rest})" if op == "s//" else f"a % b + ({rest} ? b : 0)"
            values = ", ".join(self.signed(arg + arg[-1:] * (len(arg) == WORD)) for arg in args)  # -2**63 // -1
            return self.cut(f"({local(width)})[](auto a, auto b) {{ return b ? {result} : 0; }}({values})", width)
        if op in ("<<", "u>>", "s>>"):
            return self._shift(op, args, width)
        if op in ("==", "!="):
            return " | ".join(f"({a} ^ {b})" for a, b in zip(self.words(args[0]), self.words(args[1]))).join(
                ("(", f") {op} 0"))
        if op in ("u<", "u>", "u<=", "u>="):
            return f"{self.word(args[0])} {op[1:]} {self.word(args[1])}"
        if op in ("s<", "s>", "s<=", "s>="):
            return f"{self.signed(args[0])} {op[1:]} {self.signed(args[1])}"
        if op == "r|":
            return self.any_of(args[0])
        if op == "r&":
            return " & ".join(f"({text} == {mask(min(WORD, len(args[0]) - WORD * i))})"
                              for i, text in enumerate(self.words(args[0])))
        if op == "r^":
            return f"__builtin_parityll({' ^ '.join(self.words(args[0]))})"
        if op == "match":
            return " || ".join(self._match(args[0], *pattern) for pattern in node.extra)
        if op == "case":
            equal = self._match(args[1], (1 << len(args[1])) - 1, node.extra)
            return equal if args[0] == (ONE,) else f"{self.word(args[0])} & ({equal})"
        if op == "part":
            return self._part(node)
        raise AssertionError(op)

    def _match(self, value: Value, bits: int, number: int) -> str:
        parts = []
        for i, text in enumerate(self.words(value)):
            expected_bits, mask_bits = number >> WORD * i & _MASK, bits >> WORD * i & _MASK
            if mask_bits:
                width = min(WORD, len(value) - WORD * i)
                masked = text if mask_bits == (1 << width) - 1 else f"({text} & 0x{mask_bits:x}ull)"
                parts.append(f"{masked} == 0x{expected_bits:x}ull")
        return " && ".join(f"({part})" for part in parts).join("()")

    def any_of(self, value: Value) -> str:
        """Write whether any bit is set: of a node's neighbours with one mask."""
        if ONE in value:
            return "1"
        masks: dict[tuple[int, int], int] = defaultdict(int)
        for ref in value:
            if ref != ZERO:
                masks[node_of(ref), bit_of(ref) // WORD] |= 1 << bit_of(ref) % WORD
        parts = []
        for (node, word), bits in masks.items():
            width = min(WORD, self.graph.nodes[node].width - WORD * word)
            text = self.piece(node, WORD * word, width)
            parts.append(text if bits == (1 << width) - 1 else f"({text} & {self.literal(bits, False)})")
        return f"({' | '.join(parts)}) != 0" if parts else "0"

    def _shift(self, op: str, args: tuple[Value, ...], width: int) -> str:
        by = self._amount(args[1])
        if width > 2 * WORD:
            return self.cut(f"{self.word(args[0])} {op.lstrip('u')} {by}", width)
        size = WORD if width <= WORD else 2 * WORD
        if op == "s>>":
            result = f"({self.signed(args[0])} >> ({by} < {size - 1} ? {by} : {size - 1}))"
            return self.cut(f"({'std::uint64_t' if size == WORD else 'wide_t'}){result}", width)
        cast = "(std::uint64_t)" if size == WORD else "(wide_t)"
        result = f"({cast}{self.word(args[0])} {op.lstrip('u')} {by})"
        if len(args[1]) > size.bit_length() - 1:
            result = f"({by} < {size} ? {result} : 0)"
        return self.cut(result, width) if op == "<<" else result

    def _amount(self, value: Value) -> str:
        """Write a number of bits; all ones if it has more than a word, because every value is shorter."""
        low, high = value[:WORD], value[WORD:]
        return f"({self.any_of(high)} ? ~0ull : {self.word(low)})" if high else self.word(low)

    def _part(self, node: Node) -> str:
        value, offset = node.args
        stride, first = node.extra
        low, high = offset[:WORD // 2], offset[WORD // 2:]
        at = f"(std::uint64_t){self.word(low)} * {stride}" + (f" + {first}" if first else "")
        if high:
            at = f"{self.any_of(high)} ? ~0ull : {at}"
        words = ", ".join(self.words(value))
        return self.cut(f"part<{len(value)}>({{{words}}}, {at})", node.width)
