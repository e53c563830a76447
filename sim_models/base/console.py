"""What commands print to: the console, a progress bar, and tables whose numbers are never cut off."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from t3sim.base.errors import printable
from t3sim.base.streams import Trimmed

NOTHING = "–"  #: in a cell that has no number

SILENCE_SECONDS = 20.0  #: without a terminal, a line at least as often

_WORDS_WIDTH = 30  #: that a column of words needs at least

PIPE_WIDTH = 120  #: columns when standard output is no terminal

ProgressCallback = Callable[[str, float], None]  #: (technique or step, fraction done from 0 to 1)



_ACRONYMS = {"gemm", "rs", "ag", "ar", "a2a", "dram", "dma", "rtl", "nmc", "cu", "llc"}


def output_console() -> Console:
    """Return the console for results: standard output."""
    return _console(sys.stdout)


class _Console(Console):
    """A console that prints text as it is: it has no markup, and nothing in it steers a terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a text with a word that is longer than a line, such as a path, is left to the terminal to break.

        A title with a word that is longer than its table is wide stands above it as such a text.
        """
        if len(objects) == 1 and isinstance(table := objects[0], ReportTable) and (
                parts := table.parts(self, self.options)):
            word = max(map(len, table.title.split()), default=0)
            if word > Measurement.get(self, self.options, parts[0]).maximum:
                self.print(table.title, style="bold")
                objects = (replace(table, title=""),)
        texts = [one for one in objects if isinstance(one, str)]
        if len(texts) == len(objects) and any(len(word) > self.width for text in texts for word in text.split()):
            options = {"soft_wrap": True} | options
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line what an end of reading means; rich would end the program."""
        raise BrokenPipeError


def _console(file: TextIO) -> Console:
    if file.isatty():
        return _Console(file=file)
    return _Console(width=PIPE_WIDTH, file=Trimmed(file))


@contextmanager
def progress_bar(names: Iterable[str]) -> Iterator[ProgressCallback]:
    """Show a bar per name on standard error.

    Without a terminal there, it is one line when each is done, and now and then between.

    The callback may be called as often as is convenient, and with names that were not announced.
    """
    console = _Console(stderr=True)
    if not console.is_terminal:
        finished: set[str] = set()
        last_line = time.monotonic()

        def log(name: str, fraction: float) -> None:
            nonlocal last_line
            if fraction >= 1 and name not in finished:
                finished.add(name)
                print(f"t3: {name} done", file=sys.stderr, flush=True)
            elif fraction < 1 and time.monotonic() - last_line > SILENCE_SECONDS:
                print(f"t3: {name} {fraction:.0%}", file=sys.stderr, flush=True)
            else:
                return
            last_line = time.monotonic()

        yield log
        return

    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(),
               TimeElapsedColumn(), TimeRemainingColumn())
    # Refreshed from a thread, and from the callback as well: compiled loops may hold the interpreter lock.
    with Progress(*columns, console=console, transient=True) as progress:
        tasks = {name: progress.add_task(name, total=1.0, start=False) for name in names}
        last_refresh = 0.0

        def update(name: str, fraction: float) -> None:
            nonlocal last_refresh
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=1.0, start=False)
            if not progress.tasks[progress.task_ids.index(tasks[name])].started:
                progress.start_task(tasks[name])
            progress.update(tasks[name], completed=min(1.0, max(0.0, fraction)))
            now = progress.get_time()
            if fraction >= 1 or now - last_refresh > 0.1:
                last_refresh = now
                progress.refresh()

        yield update


@dataclass(frozen=True)
class ReportTable:
    """A table with text to the left and numbers to the right, which is never wider than there is room.

    Where room is short, the first column folds and headings break where they say so; where that is not enough, the
    columns are spread over several tables, each with its rows' names, and a column that is too wide for a table of its
    own folds, too.
    """

    title: str
    first: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    total: tuple[str, ...] | None = None

    def of(self, producer: str) -> "ReportTable":
        """Return the table with the name of the kernel that makes the output, where that is no GEMM."""
        def named(words: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(word.replace("GEMM", producer) for word in words)
        return replace(self, columns=named(self.columns), rows=[named(row) for row in self.rows])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = self.parts(console, options)
        for part in parts[:1]:
            part.title = self.title
        yield from parts

    def parts(self, console: Console, options: ConsoleOptions) -> list[Table]:
        """Return the tables over which the columns are spread, without the title."""
        places_left, unlimited, tables = list(range(1, len(self.columns) + 1)), options.update(width=10_000), []
        while places_left:
            count = next((count for count in range(len(places_left), 0, -1) if options.max_width >=
                          Measurement.get(console, unlimited, self._part(places_left[:count])).minimum), 0)
            tables.append(self._part(places_left[:max(1, count)], fold=count == 0))
            places_left = places_left[max(1, count):]
        return tables

    def _part(self, places: list[int], fold: bool = False) -> Table:
        """Make the table with some of its columns. `fold`: they break between words, too."""
        table = Table(title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
                      padding=(0, 1, 0, 0))
        everything = [*self.rows, self.total] if self.total else self.rows
        longest_word = max((len(word) for row in everything for word in row[0].split()), default=1)
        table.add_column(self.first, min_width=max(len(self.first), longest_word))
        for place in places:
            column = self.columns[place - 1]
            widest = max(map(len, (*column.split("\n"), *(row[place] for row in everything))))
            if fold:
                table.add_column(column, justify="right", overflow="fold")
            else:
                table.add_column(column, justify="right", no_wrap=True, min_width=widest)
        for row in self.rows:
            table.add_row(row[0], *(row[place] for place in places))
        if self.total:
            table.add_section()
            table.add_row(self.total[0], *(self.total[place] for place in places))
        return table


def report_table(title: str, first: str, columns: Iterable[str], rows: Iterable[Sequence[str]],
           total: Sequence[str] | None = None) -> ReportTable:
    return ReportTable(title, first, tuple(columns), [tuple(row) for row in rows], tuple(total) if total else None)


def words_of_key(key: str) -> str:
    """Write a key for people: `gemm_read` as `GEMM read`."""
    return " ".join(word.upper() if word in _ACRONYMS else word for word in key.split("_"))


def print_pairs(title: str, pairs: Iterable[tuple[str, object]], console: Console) -> None:
    """Print a table of names and values."""
    console.print(report_table(title, "quantity", ("value",), (
        (words_of_key(name), f"{value:,}" if isinstance(value, int) else
         f"{value:,.3f}" if isinstance(value, float) else str(value)) for name, value in pairs)))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], console: Console,
                total: Sequence[str] | None = None) -> None:
    """Print any table; the first column has the names, `total` is set apart."""
    console.print(report_table(title, columns[0], columns[1:], rows, total))


def print_gpus(gpus: Sequence[Mapping[str, str]], console: Console | None = None) -> None:
    """Print what each GPU of a run that stands still waits for: a column per GPU.

    Columns stand side by side while words have room; it goes to standard error by default.
    """
    console = console or _console(sys.stderr)
    first, *others = gpus[0]
    widest = max(len(gpu[name]) for gpu in gpus for name in gpu)
    room = console.width - max(map(len, gpus[0])) - 1
    beside = max(1, room // (min(widest, _WORDS_WIDTH) + 1))
    console.print("What waits, by GPU", style="bold")
    for start in range(0, len(gpus), beside):
        group = gpus[start:start + beside]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(first, no_wrap=True)
        for gpu in group:
            table.add_column(gpu[first], overflow="fold")
        for name in others:
            table.add_row(name, *(gpu[name] for gpu in group))
        console.print(table)
