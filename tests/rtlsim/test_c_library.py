"""`t3 export`: the library builds without Python, and does what the compiled design does."""

import ctypes
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from t3sim.cli import main
from t3sim.cosim.component import build_component
from t3sim.cosim.designs import block_names
from t3sim.machine import load_machine
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtlsim.simulator import Design
from tests.support.damage import replaced
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl
ROOT = Path(__file__).resolve().parents[2]
STRICT = ["-Wall", "-Wextra", "-Werror"]
COMPILERS = [("g++", "gcc"), pytest.param(("clang++", "clang"), marks=pytest.mark.skipif(
    not shutil.which("clang++"), reason="clang is not installed"))]
SIZES = "channels=2,sets=8,ways=2,banks=2,regions=8,engines=2,ready_commands=4,outstanding_lines=16"


def exported(block: str, folder: Path, *options: str) -> dict:
    assert main(["export", block, "--out", str(folder), "--json", str(folder.with_suffix(".json")), *options]) == 0
    return json.loads(folder.with_suffix(".json").read_text())


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def channel(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("export") / "memory_channel"
    return folder, exported("memory_channel", folder)


@pytest.mark.parametrize("compilers", COMPILERS, ids=lambda compilers: compilers[1])
@pytest.mark.parametrize("block", on_one(block_names(), "coalescer", "memory_codec"))
def test_a_library_is_clean_and_its_test_prints_the_checksum(block, compilers, tmp_path, capsys):
    told = exported(block, tmp_path / "out", "-g", SIZES)
    assert f"{block}_check prints {told['checksum']}" in capsys.readouterr().out
    assert sorted(told["files"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    cxx, cc = compilers
    readme = (tmp_path / "out" / "README.md").read_text()
    (tmp_path / "out" / "readme.c").write_text(re.search(r"```c\n(.*?)```", readme, re.DOTALL)[1])
    run(tmp_path / "out", cxx, "-std=c++20", "-O1", *STRICT, "-c", f"{block}.cpp")
    for name in (f"{block}_check", "readme"):
        run(tmp_path / "out", cc, "-std=c99", "-pedantic", *STRICT, "-c", f"{name}.c")
        run(tmp_path / "out", cxx, f"{name}.o", f"{block}.o", "-o", name)
    assert run(tmp_path / "out", f"./{block}_check") == f"{told['checksum']}\n"
    assert re.fullmatch(r"\d+\n", run(tmp_path / "out", "./readme"))
    assert told["checksum"] in readme and int(told["checksum"], 16) != 0


def test_a_library_that_is_wrong_fails_its_test(channel, tmp_path):
    folder, told = channel
    broken = replaced((folder / "memory_channel.cpp").read_text(), "{ t3_step(&model->simulation); }",
                      "{ t3_step(&model->simulation); t3_step(&model->simulation); }")
    (tmp_path / "memory_channel.cpp").write_text(broken)
    run(tmp_path, "g++", "-std=c++20", "-I", str(folder), "memory_channel.cpp", "-x", "c",
        str(folder / "memory_channel_check.c"), "-o", "check")
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout != f"{told['checksum']}\n"


def of_table1(block: str) -> Design:
    geometry = load_machine("t3-table1").geometry()
    return build_component(lambda: BLOCKS[block](geometry), block, (block, geometry))


@pytest.fixture(scope="module")
def library(channel):
    """Give the functions of the library by their names without the block's."""
    folder, _ = channel
    run(folder, "g++", "-std=c++20", "-O1", "-shared", "-fPIC", "memory_channel.cpp", "-o", "library.so")
    functions = ctypes.CDLL(str(folder / "library.so"))
    pointer, words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)
    kinds = {"find": (ctypes.c_int, ctypes.c_char_p), "create": (pointer,), "destroy": (None, pointer),
             "reset": (None, pointer), "set": (ctypes.c_int, pointer, ctypes.c_int, ctypes.c_uint64),
             "set_words": (ctypes.c_int, pointer, ctypes.c_int, words), "step": (None, pointer),
             "get": (ctypes.c_uint64, pointer, ctypes.c_int), "settle": (None, pointer),
             "get_words": (ctypes.c_int, pointer, ctypes.c_int, words)}
    found = {}
    for name, (result, *arguments) in kinds.items():
        found[name] = getattr(functions, f"memory_channel_{name}")
        found[name].restype, found[name].argtypes = result, arguments
    return found


def in_words(value: int, width: int):
    count = -(-width // 64)
    return (ctypes.c_uint64 * count)(*(value >> 64 * n & (1 << 64) - 1 for n in range(count)))


def test_ports_and_fields_by_name_and_index(library, rng):
    """At random, beside the compiled design: what is set, settled, stepped and reset, and all that can be read."""
    with of_table1("memory_channel").simulator() as simulator:
        places = simulator.ports.places
        numbers = {name: library["find"](name.encode()) for name in places}
        assert sorted(numbers.values()) == list(range(len(places)))
        model, wide = library["create"](), 0
        for step in range(400):
            for name, (port, _, width) in rng.sample(list(places.items()), 6):
                value = rng.getrandbits(width)
                if port.name not in simulator.ports.inputs or name == "rst":
                    continue
                simulator.set(name, value)
                if width <= 64:
                    assert library["set"](model, numbers[name], value) == 0
                else:
                    wide += 1
                    assert library["set_words"](model, numbers[name], in_words(value, width)) == 0
            act = "reset" if step == 200 else "settle" if step % 5 == 0 else "step"
            getattr(simulator, act)()
            library[act](model)
            for name, (_, _, width) in places.items():
                words = in_words(0, width)
                assert library["get_words"](model, numbers[name], words) == 0
                value = sum(word << 64 * n for n, word in enumerate(words))
                expected = simulator.design.ports.place(name)
                assert value == read(simulator, *expected), (step, name)
                assert library["get"](model, numbers[name]) == value & (1 << 64) - 1
        assert wide > 20
        library["destroy"](model)


def read(simulator, port, lsb: int, width: int) -> int:
    words = (simulator.inputs if port.name in simulator.ports.inputs else simulator.outputs)[
        port.offset:port.offset + port.words]
    return int.from_bytes(words.tobytes(), "little") >> lsb & (1 << width) - 1


def test_what_cannot_be_set_changes_nothing(library):
    model = library["create"]()
    threshold, payload = (library["find"](name) for name in (b"threshold", b"compute.payload"))
    assert library["find"](b"no such port") == -1
    assert library["set"](model, threshold, 127) == 0
    for port, value in ((threshold, 128), (library["find"](b"busy"), 1), (-1, 0), (10_000, 0)):
        assert library["set"](model, port, value) == -1
    assert library["set_words"](model, payload, in_words(1 << 82, 128)) == -1
    assert library["set_words"](model, payload, in_words((1 << 82) - 1, 128)) == 0
    assert library["set"](model, payload, 5) == 0
    words = in_words(0, 128)
    assert (library["get_words"](model, payload, words), *words) == (0, 5, 0)
    assert (library["get"](model, threshold), library["get"](model, -1)) == (127, 0)
    assert library["get_words"](model, 10_000, words) == -1
    library["destroy"](model)


@pytest.mark.parametrize(("arguments", "words"), [
    (["nope", "--out", "x"], "block 'nope' is unknown"), (["all", "--out", "x"], "block 'all' is unknown"),
    (["tracker"], "--out DIR is needed"), (["tracker", "--out", "x", "-g", "ways=0"], "ways=0 is impossible"),
    (["tracker", "--out", "x", "--machine", "nowhere"], "nowhere"), (["tracker", "--out", "file"], "not a folder")])
def test_bad_input_is_one_line_and_leaves_nothing(arguments, words, error_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert words in error_of("export", *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_nothing_is_left_where_there_is_no_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("T3_CACHE", str(tmp_path / "cache"))
    from t3sim.rtlsim.toolchain import compiler_command
    compiler_command.cache_clear()
    assert main(["export", "coalescer", "--out", str(tmp_path / "out")]) == 1
    compiler_command.cache_clear()
    assert "no-such-compiler" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
def test_cmake_builds_it_and_runs_its_test(channel, tmp_path):
    folder, _ = channel
    flags = f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}"
    run(tmp_path, "cmake", "-S", str(folder), "-B", "build", flags, flags.replace("CXX", "C"))
    run(tmp_path, "cmake", "--build", "build")
    assert "100% tests passed" in run(tmp_path / "build", "ctest")


def example_in_python() -> str:
    """Do in Python what docs/examples/systemc/main.cpp does, with its numbers."""
    tiles, lines, line_bytes, banks, depth, same_cycles, turn_cycles = 16, 16, 64, 8, 16, 2, 7
    text, served = [], 0
    with of_table1("memory_channel").simulator() as channel, of_table1("tracker").simulator() as tracker:
        channel.set("starvation_limit", 16)
        tracker.set("triggers.ready", 1)
        for region in range(16):
            tracker.set(f"thresholds[{region}]", 2 * lines * line_bytes)
            tracker.set(f"tracked[{region}]", 1)
        sources = {"compute": [1, 0, 1, 0, 0], "inbound": [2, 1, 5, 0, 0]}  # operation, source, pace, line, wait
        queue, left, last_operation = [], 0, 0
        for cycle in range(5000):
            channel.settle()
            update = channel.get("updates")
            tracker.set("updates.valid", update["valid"])
            tracker.set("updates.payload", update["payload"])
            tracker.settle()
            channel.set("updates.ready", tracker.get("updates.ready"))
            channel.settle()
            if tracker.get("triggers.valid"):
                trigger = tracker.get("triggers.payload")
                text.append(f"cycle {cycle}: tile {trigger['wg']}.{trigger['wf']} at 0x{trigger['address']:x}")
            requests = {}
            for name, state in sources.items():
                operation, source, pace, line, wait = state
                if channel.get(f"{name}.valid") and channel.get(f"{name}.ready"):
                    line, wait = line + 1, pace
                    channel_offers = 0
                else:
                    channel_offers = channel.get(f"{name}.valid")
                wait -= wait > 0
                state[3:] = line, wait
                tile = line // lines
                requests[name] = {"valid": int(channel_offers or (wait == 0 and line < tiles * lines)), "payload": {
                    "address": 0x10000 + line * line_bytes, "bytes": line_bytes, "op": operation, "source": source,
                    "region": 1, "wf": tile % 4, "wg": tile // 4 * banks}}
            if channel.get("dram.valid") and channel.get("dram.ready"):
                queue.append(channel.get("dram.payload"))
            retirement = {"valid": 0, "bucket": 0}
            if queue:
                operation = queue[0]["request"]["op"]
                left = (left or (same_cycles if operation == last_operation else turn_cycles)) - 1
                if left == 0:
                    retirement, last_operation = {"valid": 1, "bucket": queue.pop(0)["bucket"]}, operation
                    served += 1
            channel.step()
            tracker.step()
            for name, request in requests.items():
                channel.set(name, request)
            channel.set("dram", {"ready": int(len(queue) < depth)})
            channel.set("occupancy", len(queue))
            channel.set("retirement", retirement)
    return "\n".join([*text, f"{len(text)} tiles complete, {served} stores in memory", ""])


@pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")
def test_the_example_in_systemc_does_what_python_does(channel, tmp_path, capsys):
    if not shutil.which("pkg-config") or subprocess.run(["pkg-config", "--exists", "systemc"], check=False).returncode:
        pytest.skip("SystemC is not installed")
    exported("tracker", tmp_path / "tracker", "--record")
    os.symlink(channel[0], tmp_path / "memory_channel")
    run(tmp_path, "cmake", "-S", str(ROOT / "docs" / "examples" / "systemc"), "-B", "build",
        f"-DLIBRARIES={tmp_path}", f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}")
    run(tmp_path, "cmake", "--build", "build")
    printed = run(tmp_path, "build/example", "tracker.rec")
    assert printed == example_in_python() and printed.count("cycle") == 16
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "tracker.rec")]) == 0
    assert "16 tiles fired, 0 open in the Tracker, 0 wrong" in capsys.readouterr().out
    fired = re.findall(r"cycle (\d+): tile (\d+)\.(\d+) at", printed)
    for cycle, wg, wf in fired[:3]:
        assert main(["explain", "--wg", wg, "--wf", wf, str(tmp_path / "tracker.rec")]) == 0
        assert f"{int(cycle):,}  " in capsys.readouterr().out, (cycle, wg, wf)


def test_a_recording_that_cannot_be_read_is_refused(error_of, tmp_path, capsys):
    exported("tracker", tmp_path / "tracker", "--record", "-g", SIZES)
    written = re.search(r"fputs\((.*), model->file\)", (tmp_path / "tracker" / "tracker.cpp").read_text())[1]
    head = json.loads(json.loads(written))
    assert head["recording_of"] == "tracker" and head["geometry"]["sets"] == 8
    capsys.readouterr()
    for text, message in (("", "is no recording"), ("[]\n", "is no recording"),
                          (json.dumps(head)[:-1], "is no recording"),
                          (json.dumps(head | {"recording_of": "coalescer"}), "is no recording"),
                          (json.dumps(head | {"geometry": [3]}), "is no recording"),
                          (json.dumps(head | {"layout": "x"}) + "\n", "another t3sim"),
                          (json.dumps(head | {"geometry": {"sets": 3}}) + "\n", "is no recording"),
                          (json.dumps(head) + "\n" + 8 * "x", "holds no cycle")):
        (tmp_path / "a.rec").write_text(text)
        assert message in error_of("explain", tmp_path / "a.rec")
    assert not (tmp_path / "a.rec.trace").exists()
    assert "--record does not go with coalescer" in error_of("export", "coalescer", "--record", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
