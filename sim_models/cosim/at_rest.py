"""Rewrites Verilator's C++ so that instances of modules that are at rest are not evaluated. The result is the same.

Most of a GPU's hardware does nothing in most cycles: a memory channel whose queues are empty, an engine without a
command. Verilator evaluates it nevertheless. `share_modules` makes it keep such modules whole: a class each, whose
functions are called per instance, from a few places of an evaluation. Each of these places now asks first:

- An instance **rests** if its functions left each of its variables as it was in a whole evaluation with a clock edge.
  They are functions of these variables, of what others write into them (its inputs) and of a few variables of others:
  while those stay the same, every further call would leave everything as it is, too, and is left out.
- An instance **wakes** at the first place at which an input, or a variable of another that its module reads, is not
  what it was when it fell asleep. Until there, what was left out would have changed nothing.

What only hands on a value costs nothing either while that stays the same: inputs of instances that are ports of the
top are written where the port is loaded (`wrapper.py`), and those that are outputs of an instance only if it was
evaluated.

An input that changes nothing while an output of the instance is 0 (`_CONCERNS_WHILE`) does not wake it then.

What is compared is found in the C++ itself: inputs are what functions of other modules write. A module whose functions
do anything else (write to another, read a memory of another, reach into one by a pointer) is left alone. The build's
self test compares with a full evaluation, on random inputs that change in every cycle or rest; if it fails, everything
is evaluated.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .toolchain import ToolchainError

#: Included by the wrapper if there is anything that may rest.
HEADER = "at_rest.h"

_FIELD = re.compile(r"^ +(?:([\w<>/*: ,]+?) (\w+)|VL_(?:IN|OUT)\w*\(&?(\w+),.*\));$", re.MULTILINE)
_INSTANCE = re.compile(r"^ +(\w+) +(TOP\w*);", re.MULTILINE)
_TOP = "TOP"
_ROOT = "___024root"
#: Functions of the top that are evaluated because inputs may have changed.
_INPUT_FUNCTION = re.compile(
    rf"^(?:VL_INLINE_OPT )?void \w+{_ROOT}___(?:ico_sequent__TOP__\d+|eval_ico)\(\w+\* vlSelf\) {{\n.*?^}}\n",
    re.MULTILINE | re.DOTALL)
#: What hands on a value: the variable, the value.
_PUT = re.compile(r"^ *at_rest::put\((vlSymsp->\w+\.\w+(?:\[\w+\])*),\s+([\w.>\[\]-]+),"
                  r"\s+vlSymsp->at_rest_\d+\.changed, [^;]+\);\n", re.MULTILINE)
#: The same, a few times in a row, of one instance's variables: its name.
_SAME_SOURCE = re.compile(
    r"^ *at_rest::put\([^;,]+,\s+vlSymsp->(TOP\w+)\.\w+(?:\[\w+\])?,\s+vlSymsp->at_rest_\d+\.changed, \d+ULL\);\n"
    r"(?: *at_rest::put\([^;,]+,\s+vlSymsp->\1\.\w+(?:\[\w+\])?,\s+vlSymsp->at_rest_\d+\.changed, \d+ULL\);\n)+",
    re.MULTILINE)
#: What reaches into an instance within another by the pointer to it, in functions that are several instances' own.
_INTO = re.compile(r"\bvlSelf(?:Ref)?(?:->|\.)(\w+)->")
_POINTER = re.compile(r"^ +(\w+)\* (\w+);", re.MULTILINE)
_MEMORY = "VlUnpacked<"
_SLOW = "__Slow.cpp"
_MOST_INSTANCES = _MOST_PLACES = 64  #: bits of a word

#: Inputs of modules, and the output without which they concern nobody. It must be a function of registers.
_CONCERNS_WHILE = {("memory_channel", "occupancy"): "busy"}  # without a request there is nothing to arbitrate

_RUNTIME = Path(__file__).with_suffix(".h").read_text()


@dataclass(frozen=True)
class _Module:
    """A class that Verilator wrote for a module that it kept whole."""

    name: str  #: of the class
    header: str
    instances: tuple[str, ...]  #: names in the table of symbols

    @cached_property
    def fields(self) -> dict[str, str]:
        return _fields(self.header)

    @cached_property
    def memories(self) -> frozenset[str]:
        return frozenset(self.fields) - frozenset(_plain(self.fields))

    def concerns_while(self, name: str) -> str | None:
        """Return the output without which an input concerns no instance, if there is one."""
        return next((output for (module, found), output in _CONCERNS_WHILE.items()
                     if found == name and self.name.endswith(f"_{module}") and output in self.fields), None)


def _fields(header: str) -> dict[str, str]:
    """Return a class's variables and their types, in the order in which they lie in memory."""
    design = header[header.index("// DESIGN SPECIFIC STATE"):header.index("// INTERNAL VARIABLES")]
    return {name or port: kind for kind, name, port in _FIELD.findall(design)}


def _plain(fields: dict[str, str]) -> list[str]:
    """Return the fields that are no memories."""
    return [name for name, kind in fields.items() if not kind.startswith(_MEMORY)]


def leave_out_what_rests(work: Path, top: str) -> dict[str, list[str]] | None:
    """Rewrite the C++ of `V{top}` in the folder. Raises ToolchainError.

    Returns, for ports of the top by their names in C++, what is to be done when one has changed; None if nothing can
    rest.

    Afterwards `HEADER` defines `at_rest::end(symbols)`, to be called after each evaluation with a clock edge,
    `at_rest::wake(symbols)`, after which the next evaluation is a full one, and `at_rest::asleep(symbols)`, the number
    of instances that rest.
    """
    prefix = f"V{top}"
    symbols_file = work / f"{prefix}__Syms.h"
    symbols = symbols_file.read_text()
    scopes = _scopes(work, prefix, symbols)
    sources = {path: path.read_text() for path in sorted(work.glob(f"{prefix}*.cpp")) if not path.name.endswith(_SLOW)}
    reached = _reached_into(sources)
    modules = [module for module in _modules(work, scopes)
               if module.name not in reached and _can_rest(module, sources, scopes)]
    if not modules:
        return None

    declared = []
    resting = {one: (number, n) for number, module in enumerate(modules) for n, one in enumerate(module.instances)}
    for number, module in enumerate(modules):
        own = {path: text for path, text in sources.items() if _is_of(path, module)}
        elsewhere = _read_elsewhere(own.values())
        places: list[list[str]] = []
        for path, text in sources.items():
            sources[path] = (_note_writes(text, module) if path in own else
                             _ask_first(_wake_by(text, module, number), module, number, places))
        declared.append(_declaration(module, number, places, elsewhere, scopes, resting))
        (work / f"{module.name}.h").write_text(_before(module.header, "    // INTERNAL VARIABLES",
                                                       "    bool at_rest_written = false;\n\n"))

    handed_on = _hand_on(sources, resting)
    for path, text in sources.items():
        path.write_text(text)
    (work / HEADER).write_text(
        f"{_RUNTIME}\nnamespace at_rest {{\n\n" + "\n".join(declared) + _over_all(len(modules))
        + "\n}  // namespace at_rest\n")
    members = "".join(f"    at_rest::Rests<at_rest::Module{number}> at_rest_{number};\n"
                      for number in range(len(modules)))
    symbols = _before(symbols, "// SYMS CLASS", f'#include "{HEADER}"\n\n')
    symbols_file.write_text(_before(symbols, "    // MODULE INSTANCE STATE", f"{members}\n"))
    return handed_on


def _before(text: str, mark: str, added: str) -> str:
    if text.count(mark) != 1:
        raise ToolchainError(f"Verilator's C++ is not as expected: {mark.strip()!r} is there {text.count(mark)} times")
    return text.replace(mark, added + mark)


@dataclass(frozen=True)
class _Scope:
    """An instance of any module: its class, and its variables' types in the order of memory."""

    kind: str
    fields: dict[str, str]


def _scopes(work: Path, prefix: str, symbols: str) -> dict[str, _Scope]:
    """Return every instance by its name in the table of symbols."""
    classes = {}
    for kind, _ in _INSTANCE.findall(symbols):
        if kind.startswith(prefix) and kind not in classes:
            classes[kind] = _Scope(kind, _fields((work / f"{kind}.h").read_text()))
    return {name: classes[kind] for kind, name in _INSTANCE.findall(symbols) if kind in classes}


def _modules(work: Path, scopes: dict[str, _Scope]) -> list[_Module]:
    instances = defaultdict(list)
    for name, scope in scopes.items():
        if name != _TOP:
            instances[scope.kind].append(name)
    return [_Module(name, (work / f"{name}.h").read_text(), tuple(of)) for name, of in instances.items()]


def _reached_into(sources: dict[Path, str]) -> set[str]:
    """Return the classes whose functions reach into others by a pointer, and those: what they write is not seen."""
    found = set()
    for path, text in sources.items():
        if pointers := set(_INTO.findall(text)):
            owner = re.sub(r"__\d+$", "", path.stem)
            header = (path.parent / f"{owner}.h").read_text()
            found |= {owner, *(kind for kind, name in _POINTER.findall(header) if name in pointers)}
    return found


def _is_of(path: Path, module: _Module) -> bool:
    return re.fullmatch(rf"{module.name}(__\d+)?\.cpp", path.name) is not None


def _can_rest(module: _Module, sources: dict[Path, str], scopes: dict[str, _Scope]) -> bool:
    """Return whether a module's instances can be left out while they are at rest.

    It may write only its own variables and read no memory of another, others may write only its variables, and a word
    must have a bit for each of its instances, and for each place where they are called.
    """
    own = "".join(text for path, text in sources.items() if _is_of(path, module))
    others = "".join(text for path, text in sources.items() if not _is_of(path, module))
    instance = "|".join(map(re.escape, module.instances))
    return not (len(module.instances) > _MOST_INSTANCES
                or re.search(r"vlSymsp->TOP\w*\.\w+(\[[^\]]*\])*\s*=[^=]", own)
                or re.search(r"^ *VL_\w+\((?:[^;=(]*, )?vlSymsp->", own, re.MULTILINE)
                or any(scope in module.instances or name not in _plain(scopes[scope].fields)
                       for scope, name in _read_elsewhere([own]))
                or any(found[3] in module.memories for found in _assignment(module).finditer(others))
                or _places(others, module) > _MOST_PLACES
                or re.search(rf"^ *VL_\w+\([^;=]*vlSymsp->(?:{instance})\.", others, re.MULTILINE))


def _places(others: str, module: _Module) -> int:
    """Count the places where instances are called: many if Verilator has a function of its own for each of them."""
    places: list[list[str]] = []
    _ask_first(others, module, 0, places)
    return len(places)


def _read_elsewhere(own) -> set[tuple[str, str]]:
    """Return the scope and name of the variables of others that a module's functions read."""
    return {found for text in own for found in re.findall(r"vlSymsp->(TOP\w*)\.(\w+)", text)}


def _assignment(module: _Module) -> re.Pattern[str]:
    """Match an assignment to a variable of an instance, from outside: the variable, instance, name and value."""
    instance = "|".join(sorted(module.instances, key=len, reverse=True))
    return re.compile(rf"(vlSymsp->({instance})\.(\w+)(?:\[[^\]]*\])*)\s*=(?!=)\s*([^;]+);")


def _wake_by(text: str, module: _Module, number: int) -> str:
    """Make whatever writes an instance's input note whether the input changes."""
    def put(found: re.Match) -> str:
        one = f"{1 << module.instances.index(found[2])}ULL"
        if output := module.concerns_while(found[3]):
            one = f"vlSymsp->{found[2]}.{output} ? {one} : 0"
        return f"at_rest::put({found[1]}, {found[4]}, vlSymsp->at_rest_{number}.changed, {one});"

    return _assignment(module).sub(put, text)


def _note_writes(text: str, module: _Module) -> str:
    """Make what writes memories say so: they are too large to be compared."""
    if not module.memories:
        return text
    memory = "|".join(sorted(module.memories, key=len, reverse=True))
    statement = re.compile(rf"(?<=[;{{}}]\n)( *)(?=(?:VL_\w+\([^;]*?)?vlSelfRef\.(?:{memory})\b)")
    return statement.sub(r"\1vlSelfRef.at_rest_written = true;\n\1", text)


def _ask_first(text: str, module: _Module, number: int, places: list[list[str]]) -> str:
    """Make calls of the same functions for several instances one loop; `places` gets the instances of each."""
    call = rf" *{module.name}___\w+\(\(&vlSymsp->({'|'.join(module.instances)})\)\);\n"
    same_instance = re.compile(rf"(?:{call})(?: *{module.name}___\w+\(\(&vlSymsp->\1\)\);\n)*")

    def ask(run: re.Match) -> str:
        loops: list[tuple[tuple[str, ...], list[str]]] = []  # functions, instances
        for calls in same_instance.finditer(run[0]):
            functions, one = tuple(re.findall(rf"{module.name}___\w+", calls[0])), calls[1]
            # An instance's own order stays; instances do not depend on each other.
            last = max((n for n, (_, ones) in enumerate(loops) if one in ones), default=-1)
            same = [ones for n, (those, ones) in enumerate(loops) if those == functions and n > last]
            if same:
                same[0].append(one)
            else:
                loops.append((functions, [one]))
        return f"        vlSymsp->at_rest_{number}.look_around(*vlSymsp);\n" + "".join(
            loop(functions, ones) for functions, ones in loops)

    def loop(functions: tuple[str, ...], ones: list[str]) -> str:
        places.append(ones)
        calls = " ".join(f"{function}(&one);" for function in functions)
        these = sum(1 << module.instances.index(one) for one in ones)
        return f"""\
        for (auto left = vlSymsp->at_rest_{number}.to_evaluate({these}ULL); left != 0; left &= left - 1) {{
            const unsigned n = __builtin_ctzll(left);
            auto& one = at_rest::Module{number}::instance(*vlSymsp, n);
            {calls}
            vlSymsp->at_rest_{number}.look(one, n, {1 << len(places) - 1}ULL);
        }}
"""

    return re.sub(rf"^(?:{call})+", ask, text, flags=re.MULTILINE)


def _hand_on(sources: dict[Path, str], resting: dict[str, tuple[int, int]]) -> dict[str, list[str]]:
    """Take out of the C++ what hands ports on to instances, and ask first where an instance's outputs are handed on.

    Returns what was taken out, by port. What is written at several places stays.
    """
    written = Counter(found[1] for text in sources.values() for found in _PUT.finditer(text))
    taken: dict[str, list[str]] = defaultdict(list)

    def take(function: re.Match) -> str:
        def one(found: re.Match) -> str:
            port = re.fullmatch(r"vlSelfRef\.(\w+)(?:\[\w+\])?", found[2])
            if port is None or port[1] not in inputs or written[found[1]] > 1:
                return found[0]
            taken[port[1]].append(" ".join(found[0].split()))
            return ""
        return _PUT.sub(one, function[0])

    def ask(found: re.Match) -> str:
        if found[1] not in resting:
            return found[0]
        number, n = resting[found[1]]
        return f"        if (vlSymsp->at_rest_{number}.stirred({n})) {{\n{found[0]}        }}\n"

    for path, text in sources.items():
        if _ROOT in path.name:
            header = (path.parent / f"{path.name.partition(_ROOT)[0]}{_ROOT}.h").read_text()
            inputs = set(re.findall(r"VL_IN\w*\(&?(\w+),", header))
            text = _INPUT_FUNCTION.sub(take, text)
        sources[path] = _SAME_SOURCE.sub(ask, text)
    return taken


def _declaration(module: _Module, number: int, places: list[list[str]], elsewhere: set[tuple[str, str]],
                 scopes: dict[str, _Scope], resting: dict[str, tuple[int, int]]) -> str:
    """Write what the templates know of a module: its instances and what is compared."""
    variables = [(module.name, "one.", *span) for span in _ranges(list(module.fields), _plain(module.fields))]
    of_each = ", ".join(f"{sum(1 << n for n, ones in enumerate(places) if one in ones)}ULL" for one in module.instances)
    table = ", ".join(f"&Symbols::{one}" for one in module.instances)
    return f"""\
struct Module{number} {{
    using Type = {module.name};
    static constexpr unsigned instances = {len(module.instances)};
    static constexpr std::uint64_t places[instances] = {{{of_each}}};
    template <class Symbols> static inline Type& instance(Symbols& symbols, unsigned n) {{
        static constexpr Type Symbols::* of[instances] = {{{table}}};
        return symbols.*of[n];
    }}
{_comparison("Variables", "const Type& one", variables)}
{_shared(elsewhere, scopes, resting)}
}};
"""


def _shared(elsewhere: set[tuple[str, str]], scopes: dict[str, _Scope], resting: dict[str, tuple[int, int]]) -> str:
    """Write what is compared of other scopes; of one that may rest itself, only after it was evaluated."""
    records, members, same, keep = [], [], [], []
    for name, scope in scopes.items():
        ranges = _ranges(list(scope.fields), [field for field in scope.fields if (name, field) in elsewhere])
        if not ranges:
            continue
        record = f"Of{name}"
        records.append(_comparison(record, f"const {scope.kind}& one",
                                   [(scope.kind, "one.", *span) for span in ranges]))
        members.append(f"        {record} of_{name};")
        equal = f"same_{record}(symbols.{name}, kept.of_{name})"
        if name in resting:
            number, n = resting[name]
            equal = f"(!symbols.at_rest_{number}.stirred({n}) || {equal})"
        same.append(f"\n            && {equal}")
        keep.append(f"keep_{record}(symbols.{name}, kept.of_{name});")
    kept = "\n        ".join(keep)
    joined, declared = "\n".join(records), "\n".join(members)
    return f"""\
{joined}
    struct Shared {{
{declared}
    }};
    template <class Symbols> static inline bool same_shared(const Symbols& symbols, const Shared& kept) {{
        return true{"".join(same)};
    }}
    template <class Symbols> static inline void keep_shared(const Symbols& symbols, Shared& kept) {{
        {kept}
    }}"""


def _comparison(kept: str, argument: str, ranges: list[tuple[str, str, str, str]]) -> str:
    """Write a record of ranges of memory, and functions that compare and keep it."""
    spans = [f"offsetof({kind}, {last}) + sizeof({kind}::{last}) - offsetof({kind}, {first})"
             for kind, _, first, last in ranges]
    members = "\n".join(f"        unsigned char range_{n}[{span}];" for n, span in enumerate(spans))
    equal = "".join(f"\n            & same<sizeof kept.range_{n}>(&{owner}{first}, kept.range_{n})"
                    for n, (_, owner, first, _) in enumerate(ranges))
    copies = "\n".join(f"        std::memcpy(kept.range_{n}, &{owner}{first}, sizeof kept.range_{n});"
                       for n, (_, owner, first, _) in enumerate(ranges))
    return f"""\
    struct {kept} {{
{members}
    }};
    static inline bool same_{kept}({argument}, const {kept}& kept) {{
        return true{equal};
    }}
    static inline void keep_{kept}({argument}, {kept}& kept) {{
{copies}
    }}"""


def _ranges(fields: list[str], wanted: list[str]) -> list[tuple[str, str]]:
    """Return the first and last fields of the ranges that hold all wanted ones."""
    positions = {name: n for n, name in enumerate(fields)}
    ranges: list[tuple[str, str]] = []
    for name in wanted:
        if ranges and positions[name] == positions[ranges[-1][1]] + 1:
            ranges[-1] = (ranges[-1][0], name)
        else:
            ranges.append((name, name))
    return ranges


def _over_all(modules: int) -> str:
    """Write what the wrapper calls."""
    ends = "\n".join(f"    symbols.at_rest_{number}.end(symbols);" for number in range(modules))
    wakes = "\n".join(f"    symbols.at_rest_{number}.wake();" for number in range(modules))
    asleep = "".join(f" + symbols.at_rest_{number}.asleep()" for number in range(modules))
    return f"""\
template <class Symbols>
inline void end(Symbols& symbols) {{
{ends}
}}

template <class Symbols>
inline void wake(Symbols& symbols) {{
{wakes}
}}

template <class Symbols>
inline int asleep(const Symbols& symbols) {{
    return 0{asleep};
}}
"""
