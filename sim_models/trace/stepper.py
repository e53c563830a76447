"""The terminal program of `t3 step`: a trace, cycle by cycle, forwards and backwards."""

import numpy as np
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Static

from t3sim.base.errors import BadInput
from t3sim.gpu.setup import STATES
from t3sim.rtl.registers import NO_THRESHOLD
from t3sim.trace.replay import CONDITION_HELP, DeviceReplay
from t3sim.trace.schema import COMPLETE, EXCEEDS, NO_STREAM, REFUSED, STREAMS, UPDATE_MARKS, Kind, conditions
from t3sim.trace.store import Trace
from t3sim.trace.words import describe, owner, reason

_BAR = 5  #: characters
_MOST_SETS = 256
_NARROW = 120  #: columns; a narrower terminal shows one panel at a time beside the events
_SLIM = 60  #: columns; a narrower one leaves out what is not an arbiter's queue and reason, or a tile's count
#: Panels, in a narrow terminal the first at the start, and the events that each shows; without any it is left out.
_PANELS = {"tracker": (Kind.UPDATE, Kind.FULL), "arbiters": (Kind.DECIDE,),
           "dma": (Kind.READY, Kind.ISSUE, Kind.WALKED, Kind.PACKET, Kind.STAGE)}
_LEGENDS = {"tracker": "(ways used/of a set)  ► meets the condition  red: full",
            "arbiters": "comp, inb: requests inside"}
_MARK = "►"  #: what made the break condition come true
_KEYS = (("←→", "event"), (". ,", "cycle"), ("k", "kind"), ("n p", "of kind"), ("b", "break"),
         ("c r", "run, back"), ("/", "search"), ("g", "go to"), ("d", "GPU"), ("tab", "panel"),
         ("?", "conditions"), ("q", "quit"))


class Stepper(App):
    """Keys are in the last line; `b` and `/` ask for a condition (`replay.CONDITION_HELP`) or a cycle."""

    TITLE = "t3 step"
    AUTO_FOCUS = None  # keys are commands until something is asked
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #where { height: 1; background: $primary; color: $text; padding: 0 1; }
    #message { height: auto; max-height: 4; padding: 0 1; color: $warning; }
    #foot { height: auto; dock: bottom; }
    #keys { height: auto; background: $panel; padding: 0 1; }
    #asking { height: 1; display: none; padding: 0 1; }
    #asking Static { width: auto; text-style: bold; } #ask { width: 1fr; height: 1; border: none; padding: 0; }
    .panel { border: round $primary; padding: 0 1; height: 1fr; }
    #above { height: 1fr; } #dma { height: auto; }
    .narrow #above { layout: vertical; } .narrow #events { height: 8; } .narrow #dma { height: 1fr; }
    .narrow .alone { height: 8; }
    """
    BINDINGS = [
        ("right", "event(1)"), ("left", "event(-1)"), ("full_stop", "cycle(1)"), ("comma", "cycle(-1)"), ("k", "kind"),
        ("n", "of_kind(1)"), ("p", "of_kind(-1)"), ("b", "ask('break')"), ("c", "search(1)"), ("r", "search(-1)"),
        ("slash", "ask('search')"), ("g", "ask('cycle')"), ("home", "end(-1)"), ("end", "end(1)"), ("d", "device"),
        Binding("tab", "panel", priority=True), ("question_mark", "help"), ("q", "quit"), ("escape", "cancel"),
        Binding("ctrl+c", "quit", priority=True),
    ]

    def __init__(self, trace: Trace, device: int = 0, cycle: int | None = None, condition: str = "") -> None:
        super().__init__()
        self.trace = trace
        self.replay = DeviceReplay(trace, device)
        self.cycle = self.replay.first if cycle is None else min(max(cycle, self.replay.first), self.replay.last)
        self.kind = Kind.TRIGGER
        self.condition = condition  #: what `c` and `r` run to
        self.searched = ""  #: what `/` looked for last; the break condition stays
        self.message = "" if condition else f"b sets a break condition, such as: {CONDITION_HELP[0]}"
        self._width = _NARROW
        self.panel = 0  #: of `_PANELS`, in a narrow terminal
        self._asked = ""

    def compose(self) -> ComposeResult:
        yield Static(id="where")
        yield Static(id="message")
        with Horizontal(id="above"):
            yield self._panel("events", "this cycle")
            yield self._panel("tracker", "Tracker")
        yield self._panel("arbiters", "arbiters")
        yield self._panel("dma", "DMA, link, compute units")
        with Vertical(id="foot"):
            with Horizontal(id="asking"):
                yield Static(id="question")
                yield Input(id="ask")
            yield Static(Text("  ").join(Text.assemble((key.replace(" ", "\u00a0"), "bold"), "\u00a0",
                                                       does.replace(" ", "\u00a0")) for key, does in _KEYS), id="keys")

    @staticmethod
    def _panel(name: str, title: str) -> VerticalScroll:
        panel = VerticalScroll(Static(id=f"{name}-text"), id=name, classes="panel")
        panel.border_title = title
        return panel

    def on_mount(self) -> None:
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        self.arrange(event.size.width)  # the program's own size is still that of before

    def arrange(self, width: int) -> None:
        """Show all panels, or in a narrow terminal the events and one more."""
        self._width, narrow = width, width < _NARROW
        self.set_class(narrow, "narrow")
        full = self._full
        for name in _PANELS:
            panel = self.query_one(f"#{name}")
            panel.display = name in (full[self.panel % len(full):][:1] if narrow and full else full)
            panel.border_subtitle = _LEGENDS.get(name, "") if width >= _SLIM else ""
        self.query_one("#above").set_class(not self.query_one("#tracker").display, "alone")

    @property
    def _full(self) -> list[str]:
        """Name the panels that the recorded events of this GPU fill."""
        return [name for name, kinds in _PANELS.items() if any(len(self.replay.of(kind)) for kind in kinds)]

    def action_panel(self) -> None:
        self.panel = (self.panel + 1) % max(1, len(self._full))
        self.arrange(self.size.width)

    def action_help(self) -> None:
        self.message = "conditions: " + "; ".join(CONDITION_HELP)
        self.show()

    # Moving

    def go(self, cycle: int | None, missing: str) -> None:
        if cycle is None:
            self.message = missing
        else:
            self.cycle, self.message = min(max(cycle, self.replay.first), self.replay.last), ""
        self.show()

    def action_event(self, direction: int) -> None:
        self.go(self.replay.next_event(self.cycle, direction > 0), "no more events that way")

    def action_cycle(self, step: int) -> None:
        self.go(self.cycle + step, "")

    def action_of_kind(self, direction: int) -> None:
        name = self.kind.name.lower()
        self.go(self.replay.next_event(self.cycle, direction > 0, self.kind), f"no more {name} events that way")

    def action_end(self, direction: int) -> None:
        self.go(self.replay.last if direction > 0 else self.replay.first, "")

    def action_kind(self) -> None:
        kinds = [kind for kind in Kind if len(self.replay.of(kind))]
        if kinds:
            after = [kind for kind in kinds if kind > self.kind]
            self.kind = (after or kinds)[0]
        self.message = f"n and p go to {self.kind.name.lower()} events"
        self.show()

    def action_device(self) -> None:
        self.replay = DeviceReplay(self.trace, (self.replay.device + 1) % self.trace.devices)
        self.arrange(self.size.width)
        self.show()

    def action_search(self, direction: int) -> None:
        if self.condition:
            self._find(self.condition, direction)
        else:
            self.message = "no break condition: press b and type one"
            self.show()

    def _find(self, condition: str, direction: int) -> None:
        try:
            event = self.replay.find(condition, self.cycle, direction > 0)
        except BadInput as error:
            self.message = str(error)
            self.show()
            return
        self.go(event, f"{condition}: not {'after' if direction > 0 else 'before'} cycle {self.cycle:,}")
        if event is not None:
            self.message = f"{condition}: here"
            self.show()

    # Asking

    def action_ask(self, what: str) -> None:
        self._asked = what
        question, self.message = {
            "break": ("break when: ", "such as: " + "; ".join(CONDITION_HELP)),
            "search": ("search: ", "such as: wg 37 wf 2; kind trigger; address 0x305000; any break condition"),
            "cycle": ("go to cycle: ", "")}[what]
        self.query_one("#question", Static).update(question)
        ask = self.query_one("#ask", Input)
        ask.value = {"break": self.condition, "search": self.searched}.get(what, "")
        self.query_one("#asking").display = True
        ask.focus()
        self.show()

    def action_cancel(self) -> None:
        self.query_one("#asking").display = False
        self.message = ""
        self.set_focus(None)
        self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_cancel()
        text = event.value.strip()
        if self._asked == "cycle":
            digits = text.replace(",", "")
            self.go(int(digits) if digits.isascii() and digits.isdecimal() else None, f"{text!r} is no cycle")
        elif text and self._asked == "search":
            self.searched = text
            self._find(text, 1)
        elif text:
            self.condition = text
            self.action_search(1)

    # Showing

    def show(self) -> None:
        run, replay = self.trace.run, self.replay
        gpu = run["numbers"][replay.device]
        where = [f"cycle {self.cycle:,} of {replay.first:,} to {replay.last:,}", f"GPU {gpu}",
                 f"n/p: {self.kind.name.lower()}", *([f"break: {self.condition}"] if self.condition else []),
                 self.trace.title]
        self.query_one("#where", Static).update(Text("   ".join(where), no_wrap=True, overflow="ellipsis"))
        self.query_one("#message", Static).update(Text(self.message))
        for name, text in (("events", self._events()), ("arbiters", self._arbiters()), ("tracker", self._tracker()),
                           ("dma", self._dma())):
            self.query_one(f"#{name}-text", Static).update(text)

    def _marked(self) -> np.ndarray:
        """Return the events of this cycle that make the break condition, or what was searched for, come true."""
        for condition in (self.condition, self.searched):
            try:
                if len(found := self.replay.fulfilling(condition, self.cycle)):
                    return found
            except BadInput:  # none is set, or it was mistyped
                pass
        return self.replay.events[:0]

    def _events(self) -> Table:
        table = _table("", "kind", "what")
        events, marked = self.replay.at(self.cycle), self._marked()
        is_marked = np.isin(events, marked)
        for i in np.lexsort((events["kind"] != self.kind, ~is_marked)):
            kind = Kind(int(events["kind"][i]))
            style = "bold reverse" if is_marked[i] else "bold" if kind == self.kind else ""
            table.add_row(_MARK if is_marked[i] else "", kind.name.lower(), Text(describe(events[i]), style=style))
        if not len(events):
            table.add_row("", "", "no event in this cycle")
        return table

    def _arbiters(self) -> Table:
        slim = self._width < _SLIM
        between = () if slim else ("limit", "waited", "comp", "inb", "ago")
        table = _table("", "ch", "DRAM queue", *between, "last decision")
        entries, marked = self.trace.run["geometry"]["queue_entries"], self._marked()
        channels = set(marked["unit"][marked["kind"] == Kind.DECIDE].tolist())
        for number in range(self.trace.run["geometry"]["channels"]):
            channel = self.replay.channel(number, self.cycle)
            if channel is None:
                continue
            d = channel.decision
            saw, ago = conditions(int(d["flags"])), self.cycle - int(d["cycle"])
            waited = channel.waited + (0 if d["stream"] != NO_STREAM or not saw["communication_waiting"] else ago)
            granted = "–" if d["stream"] == NO_STREAM else STREAMS[d["stream"]]
            cells = ("none" if d["b"] == NO_THRESHOLD else str(d["b"]), str(waited),
                     *map(str, channel.entered), f"{ago:,}" if ago else "")
            table.add_row(_MARK if number in channels else "", str(number), _bar(int(d["a"]), entries),
                          *(() if slim else cells),
                          Text(f"{granted}: {reason(d)}", style="dim" if ago else "bold"))
        if not table.row_count:
            table.add_row(*[""] * (3 + len(between)), "no decision yet")
        return table

    def _tracker(self) -> Table:
        slim = self._width < _SLIM
        table = _table("", "set", "way", "tile", "bytes counted", *(() if slim else ("region",)))
        geometry, marked = self.trace.run["geometry"], self._marked()
        open_tiles, now = self.replay.open_tiles(self.cycle), self.replay.at(self.cycle)
        updates = now[now["kind"] == Kind.UPDATE]
        leaving = updates[(updates["flags"] & (COMPLETE | EXCEEDS | REFUSED)) != 0]  # in this cycle
        moved = {(int(e["wg"]), int(e["wf"])) for e in updates}
        because = {(int(e["wg"]), int(e["wf"])) for e in marked[marked["kind"] == Kind.UPDATE]}
        sets = open_tiles["wg"] % geometry["sets"]
        order = np.argsort(~np.isin(sets, [wg % geometry["sets"] for wg, _ in moved]), kind="stable")
        open_tiles = open_tiles[order]  # sets of this cycle's updates first
        before = -1
        for e in [*leaving, *open_tiles[:_MOST_SETS]]:
            tile, number = (int(e["wg"]), int(e["wf"])), int(e["wg"]) % geometry["sets"]
            used = int((sets == number).sum())
            filled = "" if slim else f" ({used}/{geometry['ways']})"
            label = f"{number}{filled}" if number != before else ""
            before = number
            mark = next((word for bit, word in UPDATE_MARKS.items() if int(e["flags"]) & bit
                         and bit & (COMPLETE | EXCEEDS | REFUSED)), "")
            table.add_row(_MARK if tile in because else "",
                          Text(label, style="red" if used == geometry["ways"] else ""), mark or str(e["c"]),
                          Text(owner(e), style="bold" if tile in moved else ""),
                          _bar(int(e["a"]), int(e["b"]), 0 if slim else _BAR), *(() if slim else (str(e["region"]),)))
        if not len(open_tiles) and not len(leaving):
            table.add_row("", "", "", "no open tile", "", *(() if slim else ("",)))
        return table

    def _dma(self) -> Table:
        table = _table("", "")
        count, known = self.replay.commands(self.cycle)
        last = ", ".join(owner(c) for c in known[::-1][:6])
        table.add_row("commands waiting", f"{count}" + (f", the last came from {last}" if last else ""))
        none = "none taken since the recording began" if self.replay.first else "idle"
        for number, command in enumerate(self.replay.engines(self.cycle)):
            table.add_row(f"engine {number}", none if command is None else
                          f"{owner(command)}, taken in cycle {int(command['cycle']):,}")
        packets = self.replay.of(Kind.PACKET)
        sent_packets = packets[packets["cycle"] <= self.cycle]
        arrival = sent_packets["cycle"] + sent_packets["b"] + self.trace.run["link_latency_cycles"]
        flying = sent_packets[arrival > self.cycle]
        table.add_row("link", f"{len(flying)} packets under way, {len(sent_packets):,} sent")
        states = self.replay.units(self.cycle)["b"]
        words = ", ".join(f"{n} {STATES[s].replace('_', ' ')}" for s, n in zip(*np.unique(states, return_counts=True)))
        table.add_row("compute units", words or "nothing yet")
        return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=any(headings), header_style="cyan", expand=True,
                  padding=(0, 1, 0, 0))
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], ratio=1)  # takes what the others leave, in as many lines as it needs
    return table


def _bar(value: int, limit: int, length: int = _BAR) -> Text:
    """Draw a level as `███░░ 1,024/2,048`."""
    full = min(length, length * value // max(1, limit))
    bar = "█" * full + "░" * (length - full) + " " * bool(length)
    return Text(f"{bar}{value:,}/{limit:,}", style="red" if value >= limit else "")
