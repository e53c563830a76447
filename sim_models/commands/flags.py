"""The options that are short-cuts for a scenario's keys, and the commands that take a scenario.

A key that has no short-cut is set by `--set`, or in a file.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t3sim.base.errors import BadInput, InFile, is_ours, printable
from t3sim.commands.options import AllowCodeOption, file_name, natural_number, size_in_bytes, whole_number
from t3sim.rtl.arbiter import POLICIES
from t3sim.study.scenario.short_names import SHORT_NAMES, SWITCHES, keys_of

if TYPE_CHECKING:
    from t3sim.study.scenario.scenario import Scenario

_NUMBERS = (whole_number, natural_number, size_in_bytes)  #: parsers of one
LAYER, MECHANISM, MACHINE = "Layer", "Exchange and mechanisms", "Machine"  #: panels of the help


@dataclass(frozen=True)
class Flag:
    """A short-cut for a key."""

    name: str  #: of `SHORT_NAMES`
    metavar: str = ""  #: of its value; none: a switch
    help: str = ""
    panel: str = ""
    hidden: bool = True  #: from the help page, which is one screen
    parser: Callable[[str], Any] | None = None

    @property
    def key(self) -> str:
        """The key that it sets: `exchange.topology`."""
        return SHORT_NAMES[self.name]

    @property
    def word(self) -> str:
        """The option: `--topology`."""
        return f"--{self.name}"

    @property
    def parameter(self) -> inspect.Parameter:
        """The option as typer takes it."""
        option = typer.Option(self.word, metavar=self.metavar or None, parser=self.parser, help=self.help,
                              hidden=self.hidden, rich_help_panel=self.panel or None)
        kind = bool if not self.metavar else int if self.parser in _NUMBERS else str
        return inspect.Parameter(_parameter(self.name), inspect.Parameter.KEYWORD_ONLY,
                                 default=None if self.metavar else False,
                                 annotation=Annotated[kind | None if self.metavar else kind, option])


def _parameter(name: str) -> str:
    return name.replace("-", "_")


FLAGS = (
    Flag("model", "MODEL|FILE", "A model of the T3 paper, llama-3.1-8b, ..., or a Hugging Face config.json.", LAYER,
         False),
    Flag("sublayer", "NAME", "op, fc1, fc2 or ip.", LAYER, False),
    Flag("tp", "N", "Tensor-parallel degree: GPUs, 2 to 64.", LAYER, False, whole_number),
    Flag("gemm", "MxNxK", "GEMM of one GPU, instead of a model.", LAYER, False),
    Flag("devices", "N", "GPUs for --gemm, 2 to 64.", LAYER, False, whole_number),
    Flag("tokens", "N", "Tokens of a batch, for a recent model or a config.json.", parser=whole_number),
    Flag("dtype", "NAME", "Format of every element."),
    Flag("chakra", "FILE", "A Chakra execution trace.", parser=file_name),
    Flag("kernel", "FILE", "A custom kernel alone.", parser=file_name),
    Flag("collective", "rs|ag|ar|a2a", "A collective alone."),
    Flag("bytes", "N", "Size of each GPU's array, for a collective alone: 65536 or 64K.", parser=size_in_bytes),
    Flag("values", help="Compute with numbers and compare all bits."),
    Flag("embedding", "BATCHxTABLES", "Batch of all GPUs, and tables per GPU."),
    Flag("experts", "EXPERTSxCHOSEN", "Experts on all GPUs, and experts per token."),
    Flag("locality", "NAME|FILE", "Distribution of an embedding's rows or of the tokens' experts."),
    Flag("split-k", "N", "Parts of the GEMM's K.", parser=whole_number),
    Flag("operator", "NAME", "gemm-rs, gemm-ar, gemm-a2a, ag-gemm, ...", MECHANISM, False),
    Flag("topology", "NAME", "ring, switch, full, torus:2x4 or nodes:2x4.", MECHANISM, False),
    Flag("algorithm", "NAME", "Algorithm of Track & Trigger. Default: the topology's.", MECHANISM,
         False),
    Flag("sums", "NAME", "fixed: refuse sums whose bits may differ."),
    Flag("signal", "NAME", "Unit of data that must be complete before it is sent."),
    Flag("technique", "A,B,...", "Mechanisms to run; see `t3 techniques`.", MECHANISM, False),
    Flag("policy", "NAME", f"Arbiter of t3: {', '.join(POLICIES)}.", MECHANISM, False),
    Flag("comm-units", "N", "Compute units of decomposed's communication kernels.", parser=whole_number),
    Flag("flux-order", "NAME", "Order of tiles in flux."),
    Flag("flux-transfer", "NAME", "push or pull (event level)."),
    Flag("flux-pieces", "N", "Communication tiles of a GPU's rows.", parser=whole_number),
    Flag("tune", help="Use the best of Flux's choices."),
    Flag("slice", "N", "Tasks that are sent together.", parser=whole_number),
    Flag("machine", "NAME|FILE", "A machine by name (see `t3 machines`), or a TOML file.", MACHINE, False, file_name),
    Flag("level", "NAME", "cycle, event or library."),
    Flag("no-software", help="Libraries and hosts take no time."),
    Flag("every-gpu", help="Simulate every GPU."),
    Flag("skew", "SPEC", "Differences between the GPUs."),
    Flag("seed", "N", "Random seed.", parser=natural_number),
)

_SCENARIO = inspect.Parameter("scenario", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[
    str | None, typer.Argument(metavar="[SCENARIO]", parser=file_name, help="A scenario's TOML file.")])
_SET = inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of a scenario: exchange.sums=fixed.")])
_ALLOW_CODE = inspect.Parameter("allow_code", inspect.Parameter.KEYWORD_ONLY, default=False,
                                annotation=AllowCodeOption)


def takes_scenario(command: Callable, flags: tuple[Flag, ...] = FLAGS) -> Callable:
    """Give a command, whose first parameter is a scenario, the options that make one."""
    _, *own_options = inspect.signature(command).parameters.values()

    @wraps(command)
    def called(**given: Any) -> Any:
        file, settings, allow_code = given.pop("scenario"), given.pop("set_") or [], given.pop("allow_code")
        changes = keys_of({flag.name: given.pop(_parameter(flag.name)) for flag in flags})
        with scenario_of_file(file, changes, settings, allow_code) as scenario:
            return command(scenario, **given)

    parameters = [_SCENARIO, _SET, _ALLOW_CODE, *(flag.parameter for flag in flags),
                  *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own_options)]
    called.__signature__ = inspect.Signature(parameters)
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    del called.__wrapped__
    return called


def takes_scenario_by(**helps: str) -> Callable[[Callable], Callable]:
    """Give a command these short-cuts only, each with its own help; `--set` reaches all keys."""
    flags = tuple(replace(one, help=helps[name], hidden=False, panel="")
                  for name in helps for one in FLAGS if one.name == name)
    return lambda command: takes_scenario(command, flags)


@contextmanager
def scenario_of_file(file: str | None, flags: Mapping[str, Any], settings: Iterable[str] = (),
                     allow_code: bool = False) -> Iterator["Scenario"]:
    """Make the scenario of a file, if one is given, and of what is said beside it; its faults name the file.

    `allow_code`: the file may name functions that no installed part has.
    """
    from t3sim.study.scenario.files import read_scenario

    content = {} if file is None else read_scenario(file)
    try:
        yield _scenario(content, flags, settings, allow_code)
    except ValueError as error:
        if file is None or not is_ours(error):
            raise
        message = str(error) if isinstance(error, InFile) else in_options(str(error), (*flags, "allow_code"))
        raise InFile(f"{file}: {message}") from None


def _scenario(content: dict[str, Any], flags: Mapping[str, Any], settings: Iterable[str],
              allow_code: bool) -> "Scenario":
    from t3sim.base.custom import GROUPS
    from t3sim.study.scenario.files import scenario_of, value_of

    changes = dict(flags)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--set {setting[:40]!r} is not KEY=VALUE, for example exchange.sums=fixed")
        changes[key.strip()] = value_of(value.strip())
    return scenario_of(content, changes, code=GROUPS if allow_code else None)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on what a scenario comes to."""
    for note in notes:
        print(printable(f"t3: {in_options(note)}"), file=sys.stderr, flush=True)


def in_options(message: str, only: Iterable[str] | None = None, own_options: Iterable[str] = ()) -> str:
    """Write a message's keys as the options that stand for them: `layer.tp = 8` as `--tp 8`.

    `only`: these keys, all if not given; `own_options`: a command's, which messages name alone, `global_batch = 2`.
    """
    texts = {text: option for key, text, option in _OPTIONS if only is None or key in only}
    for word in own_options:
        key = word.removeprefix("--").replace("-", "_")
        texts |= {f"{key} = true": word, f"{key} = ": f"{word} "}
        message = re.sub(f"^{key}(?=: )", word, message)
    keys = "|".join(re.escape(text) + ("" if " " in text else r"(?!\w|\.\w| = )")
                    for text in sorted(texts, key=len, reverse=True))
    return re.sub(rf"(?<![\w.'\"])(?<!\] )({keys})", lambda match: texts[match[0]], message)


#: Keys, what names each in a message, and the option that takes its place. A key without a dot is a word, too.
_OPTIONS = [
    ("allow_code", "allow_code = true", "--allow-code"),
    *((flag.key, f"{flag.key} = ", f"{flag.word} ") for flag in FLAGS if flag.metavar),
    *((flag.key, f"{flag.key} = {str(SWITCHES[flag.name]).lower()}", flag.word) for flag in FLAGS if not flag.metavar),
    *((flag.key, flag.key, flag.word) for flag in FLAGS if "." in flag.key)]
