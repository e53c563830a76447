"""What options have in common: numbers are written in the digits 0 to 9, and no output takes another file's place."""

import typing

import pytest
import typer

from t3sim import cli
from t3sim.base.cache import limit_bytes
from t3sim.base.errors import BadInput
from t3sim.base.numerals import decimal, whole
from t3sim.commands.app import COMMANDS, function_of, in_options_of
from t3sim.commands.options import OUTPUTS, decimal_number, natural_number, size_in_bytes, whole_number
from t3sim.commands.trace import _numbers
from t3sim.cosim.geometry_option import parse_sizes, parse_sweep
from t3sim.testbenches.hbm_replay.trace import read_trace

_INPUTS = {"--machine", "--model", "--kernel", "--library", "--beside", "--plan", "--chakra", "--locality", "--log",
           "--rows"}
NOT_WHOLE = ["٤", "४", "４", "1_000", "1e3", "0x10", "", "-", "4.0", "4²", "½", "Ⅷ"]


def options(kind: type = typer.models.OptionInfo):
    """Give (command, name, type, option) of every option."""
    for command in COMMANDS:
        for name, hint in typing.get_type_hints(function_of(command), include_extras=True).items():
            of, *extras = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
            for info in extras:
                if isinstance(info, kind):
                    yield command, name, of, info


def words(name: str, info) -> set[str]:
    return {word for word in info.param_decls or () if word.startswith("--")} or {f"--{name.replace('_', '-')}"}


def test_every_number_among_the_options_is_read_by_a_parser_of_ours():
    numbers = {(command, name): info.parser for command, name, of, info in options()
               if {int, float} & ({of} | set(typing.get_args(of)))}
    assert len(numbers) > 20
    assert not [option for option, parser in numbers.items()
                if parser not in (whole_number, natural_number, decimal_number, size_in_bytes)]


@pytest.mark.parametrize("text", NOT_WHOLE)
def test_a_whole_number_has_the_digits_0_to_9(text, monkeypatch):
    with pytest.raises(ValueError, match="not a whole number"):
        whole(text)
    for parser in (whole_number, natural_number):
        with pytest.raises(typer.BadParameter, match="not a whole number"):
            parser(text)
    for parse in (lambda: parse_sizes(f"ways={text}"), lambda: parse_sweep(f"ways=2,{text}")):
        with pytest.raises(BadInput, match="not a whole number"):
            parse()
    with pytest.raises(BadInput, match="is not a number or a range"):
        _numbers("--wg", text, 100)


def test_numbers():
    assert [whole(text) for text in ("0", "+4", "-12", " 7 ")] == [0, 4, -12, 7]
    assert [decimal(text) for text in ("3", ".5", "3e11", "-2.5E-1", "4.")] == [3, 0.5, 3e11, -0.25, 4]


@pytest.mark.parametrize("text", ["٤", "1_0.5", "nan", "inf", "", "1e", "0x1", "1,5"])
def test_a_number_has_the_digits_0_to_9(text, monkeypatch):
    with pytest.raises(typer.BadParameter, match="not a number"):
        decimal_number(text)
    monkeypatch.setenv("T3_CACHE_GB", text or " ")
    with pytest.raises(BadInput, match="T3_CACHE_GB"):
        limit_bytes()


def test_a_memory_trace_has_the_digits_0_to_9(tmp_path):
    (tmp_path / "trace").write_text("0x40 READ ٤\n")
    with pytest.raises(BadInput, match="trace:1: expected"):
        read_trace(tmp_path / "trace")


@pytest.mark.parametrize("arguments", [
    ("run", "--devices", "٤"), ("verilog", "--out", "o", "-g", "ways=٤"), ("dma", "--level", "cycle", "--gpus", "٤"),
    ("end-to-end", "--model", "gpt-3", "--gpus", "8", "--mapping", "tp=8", "--tokens", "٣e11"),
    ("end-to-end", "--model", "gpt-3", "--gpus", "8", "--mapping", "tp=٨"),
    ("run", "--gemm", "١x1x1", "--devices", "2"),
    ("run", "--gemm", "512x512x64", "--devices", "2", "--every-gpu", "--skew", "late:٣:1"),
    ("collective", "--sizes", "١M"), ("collective", "--topology", "ring:٨"),
    ("sweep", "no-study", "--out", "o", "--shard", "١/2")])
def test_other_digits_are_one_line(arguments, error_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error_of(*arguments)
    assert not list(tmp_path.iterdir())


def test_every_file_or_folder_among_the_options_is_known_as_output_or_input():
    named = {word for _, name, _, info in options() for word in words(name, info)
             if {"FILE", "DIR"} & set((info.metavar or "").replace("|", " ").split())}
    assert set(OUTPUTS) <= named and named - set(OUTPUTS) <= _INPUTS


@pytest.mark.parametrize("arguments", [
    ("verilog", "coalescer", "--out", "o", "--json", "o"), ("verilog", "coalescer", "--out", "o/x", "--json", "o"),
    ("verilog", "coalescer", "--out", "o", "--json", "./o/../o"),
    ("verilog", "coalescer", "--out", "o", "--json", "link"),
    ("run", "--json", "a.svg", "--plot", "a.svg"), ("area", "coalescer", "--json", "p", "--markdown", "p"),
    ("area", "coalescer", "--sweep", "ways=2,4", "--plot", "p.svg", "--markdown", "p.svg"),
    ("collective", "--sizes", "1M", "--algorithm", "ring", "--write-plan", "q", "--timeline", "q"),
    ("end-to-end", "--model", "gpt-3", "--gpus", "8", "--search", "--plot", "e.svg", "--json", "e.svg"),
    ("trace", "--out", "t", "--json", "t"), ("reproduce", "--out", "t", "--json", "t"),
    ("sweep", "s.toml", "--out", "t", "--json", "t"), ("sweep", "s.toml", "--out", "t", "--json", "s.toml"),
    ("run", "--machine", "s.toml", "--json", "s.toml"), ("hbm-replay", "s.toml", "--json", "s.toml"),
    ("area", "coalescer", "--library", "s.toml", "--markdown", "s.toml")])
def test_no_output_takes_another_files_place(arguments, error_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text('extends = "t3-table1"\n')
    (tmp_path / "link").symlink_to("o")
    assert "would overwrite" in error_of(*arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"s.toml", "link"}
    assert (tmp_path / "s.toml").read_text() == 'extends = "t3-table1"\n'


@pytest.mark.builds_rtl
@pytest.mark.slow
def test_standard_output_and_files_in_a_folder_are_places_of_their_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o").mkdir()
    assert cli.main(["verilog", "ring_monitor", "--out", "o", "--json", "o/files.json"]) == 0
    assert {"files.json", "ring_monitor.v"} <= {path.name for path in (tmp_path / "o").iterdir()}
    assert cli.main(["registers", "--json", "-"]) == 0


@pytest.mark.parametrize("command, message, written", [
    ("dma", "initiator = 'x' is unknown", "--initiator 'x' is unknown"),
    ("dma", "sizes: 3 bytes", "--sizes: 3 bytes"),
    ("dma", "[link] gpus = 1", "[link] gpus = 1"),
    ("end-to-end", "not gpus = 8, global_batch = 2", "not --gpus 8, --global-batch 2"),
    ("end-to-end", "ignore_memory = true", "--ignore-memory"),
    ("trace", "gpus = 3 is odd", "gpus = 3 is odd"),
    ("--help", "gpus = 1", "gpus = 1")])
def test_a_message_names_its_commands_options(command, message, written):
    assert in_options_of(command, message) == written


def test_keys_of_a_machine_stay_as_its_file_has_them(error_of, tmp_path):
    """`t3 dma` has an option of this name."""
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "mi300x"\ngpus = 1\n')
    line = error_of("dma", "--machine", str(mine))
    assert "mine.toml: gpus = 1: the event level of DMA engines needs at least 2" in line
