"""The compiled RTL and Amaranth's simulator behind one interface give the same traces."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from amaranth import Module, Mux, signed
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from numba import njit

from t3sim.base import cache
from t3sim.cosim import component, verilog
from t3sim.cosim.component import build_component
from t3sim.cosim.designs import write_registers_in_place
from t3sim.cosim.verilog import component_verilog, declared_ports, generate_verilog
from t3sim.rtl import layouts
from t3sim.rtl.control.watchdog import WatchDog
from t3sim.rtl.geometry import ChannelGeometry, Geometry
from t3sim.rtlsim import build, toolchain
from t3sim.rtlsim.amaranth_backend import AmaranthBackend, pack, unpack
from t3sim.rtlsim.build import component_text
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import slot
from t3sim.rtlsim.signature import PortError, declared_ports_of, port_map
from t3sim.rtlsim.simulator import Simulator
from t3sim.rtlsim.stimulus import checksum, random_stimulus
from t3sim.rtlsim.toolchain import ToolchainError

pytestmark = pytest.mark.builds_rtl

GEOMETRY = Geometry()
ROOT = Path(__file__).resolve().parents[2]


class Widths(wiring.Component):
    """Ports of every kind: an array of streams, nested arrays, wide, signed, enum and combinational ones, a memory."""

    def __init__(self) -> None:
        super().__init__({
            "requests": In(stream.Signature(layouts.request(GEOMETRY))).array(3),
            "commands": Out(stream.Signature(layouts.dram_command(GEOMETRY))).array(3),
            "levels": In(7).array(2, 2),
            "offset": In(signed(5)),
            "op": In(layouts.Op),
            "retired": In(layouts.retirement(GEOMETRY)),
            "total": Out(130),
            "word": Out(64),
            "config": Out(3),  # a keyword of Verilog
            "same_cycle": Out(8),
            "row": Out(12),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        for request, command in zip(self.requests, self.commands):
            m.d.comb += request.ready.eq(~command.valid)
            with m.If(request.valid & request.ready):
                m.d.sync += [command.valid.eq(1), command.payload.request.eq(request.payload)]
            with m.Elif(command.ready):
                m.d.sync += command.valid.eq(0)
        m.d.sync += self.total.eq((self.total << 3) ^ self.levels[0][1] ^ self.offset ^ (self.total >> 70))
        m.d.sync += self.word.eq(self.word * 5 + self.levels[1][0] + 1)
        m.d.sync += self.config.eq(self.offset)
        m.d.comb += self.same_cycle.eq(self.levels[1][1] + self.word[:7] + Mux(self.op.as_value() == 2, 1, 0))
        m.submodules.rows = rows = memory.Memory(shape=12, depth=16, init=range(16))
        write, read = rows.write_port(), rows.read_port()
        m.d.comb += [write.en.eq(self.retired.valid), write.addr.eq(self.retired.bucket),
                     write.data.eq(self.word[3:15]), read.addr.eq(self.levels[0][0][:4]), self.row.eq(read.data)]
        return m


class Add(wiring.Component):
    """Without registers, hence without a clock."""

    def __init__(self) -> None:
        super().__init__({"a": In(70), "b": In(70), "sum": Out(71)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += self.sum.eq(self.a + self.b)
        return m


@pytest.fixture(scope="module")
def widths():
    return build_component(Widths, "widths")


@pytest.fixture
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T3_CACHE", str(tmp_path))
    return tmp_path


def backends(factory, name):
    design = build_component(factory, name)
    return Simulator(design), AmaranthBackend(factory(), design.ports)


def test_port_map_names_every_port_and_field():
    _, ports = generate_verilog(Widths(), "widths")
    assert ports.port("requests[2].payload").verilog == "requests__2__payload"
    assert ports.inputs["levels[1][0]"].width == 7
    assert "requests[0].ready" in ports.outputs and "commands[0].ready" in ports.inputs
    assert ports.outputs["total"].words == 3
    assert list(ports.inputs)[-1] == "rst" and ports.clock == "clk"
    assert [port.offset for port in ports.inputs.values()][:3] == [0, 2, 3]
    fields = ports.port("commands[1].payload").fields
    assert fields["request.bytes"].lsb == 48 and fields["communication"].lsb == fields["request"].width == 82
    assert PortMap.from_json(ports.to_json()) == ports
    with pytest.raises(KeyError, match="no port 'requests'"):
        ports.port("requests")


def test_verilog_is_the_same_in_every_process():
    program = ("import hashlib; from tests.rtlsim.test_cosim import Widths, generate_verilog; "
               "print(hashlib.sha256(generate_verilog(Widths(), 'widths')[0].encode()).hexdigest())")
    digests = {subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100,
                              env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(digests) == 1
    text, _ = generate_verilog(Widths(), "widths")
    assert "/" + "work" not in text and ".py" not in text


def test_verilog_with_other_ports_is_refused():
    component = Widths()
    text, _ = generate_verilog(component, "widths")
    with pytest.raises(PortError, match="output word is not word with 64 bits"):
        port_map(declared_ports_of(component), "widths",
                 declared_ports(text.replace("[63:0] word;", "[62:0] word;"), "widths"))
    more = text.replace("  input clk;", "  input clk;\n  input extra;")
    with pytest.raises(PortError, match="lacks.*'extra'"):
        port_map(declared_ports_of(component), "widths", declared_ports(more, "widths"))


@pytest.mark.parametrize("number", range(3))
def test_compiled_and_amaranth_traces_are_equal(number, seed):
    compiled, amaranth = backends(Widths, "widths")
    stimulus = random_stimulus(compiled.ports, 300, seed + number, reset_probability=0.02)
    first = compiled.run(stimulus)
    np.testing.assert_array_equal(first, amaranth.run(stimulus))
    assert len(np.unique(first, axis=0)) > 250
    compiled.reset()
    amaranth.reset()
    np.testing.assert_array_equal(compiled.outputs, amaranth.outputs)
    np.testing.assert_array_equal(compiled.run(stimulus), first)
    np.testing.assert_array_equal(amaranth.run(stimulus), first)


def test_step_run_and_checksum_agree(widths):
    stimulus = random_stimulus(widths.ports, 200, seed=5)
    with Simulator(widths) as stepped, Simulator(widths) as replayed, Simulator(widths) as bare:
        trace = replayed.run(stimulus)
        for row, expected in zip(stimulus, trace):
            stepped.inputs[:] = row
            stepped.step()
            np.testing.assert_array_equal(stepped.outputs, expected)
        assert bare.checksum(stimulus) == checksum(trace)
        np.testing.assert_array_equal(bare.outputs, trace[-1])
        np.testing.assert_array_equal(bare.inputs, stimulus[-1])
        bare.step(3)
        stepped.step(3)
        np.testing.assert_array_equal(bare.outputs, stepped.outputs)


def test_settling_is_not_a_clock_edge():
    for backend in backends(Widths, "widths"):
        level, same_cycle, word = (backend.ports.port(name).offset for name in ("levels[1][1]", "same_cycle", "word"))
        backend.step(3)
        before = backend.outputs[word]
        for value in (9, 100):
            backend.inputs[level] = value
            backend.settle()
            backend.settle()
            assert backend.outputs[word] == before
            assert backend.outputs[same_cycle] == value + (before & np.uint64(127))


def test_a_block_without_registers_has_no_clock():
    compiled, amaranth = backends(Add, "add")
    assert compiled.ports.clock is None and list(compiled.ports.inputs) == ["a", "b"]
    stimulus = random_stimulus(compiled.ports, 50, seed=1)
    trace = compiled.run(stimulus)
    np.testing.assert_array_equal(trace, amaranth.run(stimulus))
    ports = compiled.ports
    for row, outputs in zip(stimulus, trace):
        a, b = pack(ports.inputs, row) & ((1 << 70) - 1), pack(ports.inputs, row) >> 70
        assert pack(ports.outputs, outputs) == a + b


def test_bits_above_a_ports_width_are_ignored(widths):
    stimulus = random_stimulus(widths.ports, 100, seed=2)
    dirty = stimulus.copy()
    for port in widths.ports.inputs.values():
        if port.width % 64:
            dirty[:, port.offset + port.words - 1] |= np.uint64((1 << 64) - (1 << port.width % 64))
    for backend in (Simulator(widths), AmaranthBackend(Widths(), widths.ports)):
        expected = backend.run(stimulus)
        backend.reset()
        np.testing.assert_array_equal(backend.run(dirty), expected)


def test_instances_are_independent(widths):
    stimulus = random_stimulus(widths.ports, 50, seed=3)
    first, second = Simulator(widths), Simulator(widths)
    trace = first.run(stimulus)
    second.step(7)
    first.reset()
    np.testing.assert_array_equal(first.run(stimulus), trace)
    first.close()
    first.close()
    second.step()
    with pytest.raises(ValueError, match="closed"):
        first.step()
    with pytest.raises(ValueError, match="stimulus for widths"):
        second.run(stimulus[:, 1:])


def test_amaranth_backend_writes_waveforms(tmp_path):
    _, ports = generate_verilog(Widths(), "widths")
    with AmaranthBackend(Widths(), ports, vcd=tmp_path / "widths.vcd") as backend:
        backend.step(5)
        with pytest.raises(ValueError, match="rst"):
            backend.reset()
    assert "#4500" in (tmp_path / "widths.vcd").read_text()


def test_pack_is_the_inverse_of_unpack(widths):
    words = random_stimulus(widths.ports, 1, seed=4)[0]
    again = np.zeros_like(words)
    unpack(widths.ports.inputs, pack(widths.ports.inputs, words), again)
    np.testing.assert_array_equal(words, again)


def test_numba_calls_the_library_fast(widths):
    @njit
    def loop(step, handle, inputs, outputs, cycles):
        for _ in range(cycles):
            inputs[0] += outputs[0]
            step(handle)

    with Simulator(widths) as backend, Simulator(widths) as reference:
        reference.step(100)
        loop(widths.step, backend.handle, backend.inputs, backend.outputs, 100)
        word = widths.ports.outputs["word"].offset
        assert backend.outputs[word] == reference.outputs[word] != 0
        start = time.perf_counter()
        loop(widths.step, backend.handle, backend.inputs, backend.outputs, 500_000)
        assert 500_000 / (time.perf_counter() - start) > 500_000


def test_the_cache_is_used_and_repaired(private_cache):
    made = []

    def make(folder):
        made.append(folder.name)
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("content")

    entry = cache.cached("key", make)
    file = entry / "inner" / "file"
    assert cache.cached("key", make) == entry == private_cache / "key" and len(made) == 1
    for damage in (file.unlink, lambda: file.write_text("conten"), lambda: file.write_text("Content"),
                   (entry / "manifest.json").unlink):
        made.clear()
        damage()
        assert cache.cached("key", make) == entry and made == ["key.partial"]
        assert file.read_text() == "content"
    left = private_cache / "other.partial"  # as after a kill
    (left / "inner").mkdir(parents=True)
    (left / "half").write_text("half")
    assert not (cache.cached("other", make) / "half").exists() and not left.exists()


def test_builders_at_once_build_once(private_cache):
    program = ("import time, sys; from t3sim.base import cache\n"
               "def make(folder):\n"
               "    print('made', flush=True); time.sleep(0.5); (folder / 'file').write_text('content')\n"
               "print((cache.cached('key', make) / 'file').read_text())")
    builders = [subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
                for _ in range(4)]
    output = [builder.communicate(timeout=100)[0].split() for builder in builders]
    assert sorted(output) == [["content"]] * 3 + [["made", "content"]]
    assert [path.name for path in private_cache.iterdir()] == ["key"]


def test_a_killed_build_is_taken_over(private_cache):
    program = ("import os; from t3sim.base import cache\n"
               "def make(folder):\n    (folder / 'half').write_text(''); os.kill(os.getpid(), 9)\n"
               "cache.cached('key', make)")
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=100).returncode == -9
    assert (private_cache / "key.partial" / "half").exists()
    entry = cache.cached("key", lambda folder: (folder / "file").write_text("content"))
    assert sorted(path.name for path in entry.iterdir()) == ["file", "manifest.json"]


def test_a_build_is_not_repeated(widths, monkeypatch):
    monkeypatch.setattr(build, "run_all", lambda *_: pytest.fail("built again"))
    assert build_component(Widths, "widths").path == widths.path
    for name, shown in (("other", None), ("widths", {"one": [slot(0, 64, "word")]})):
        with pytest.raises(pytest.fail.Exception, match="built again"):
            build_component(Widths, name, inner=shown)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O2"))
    with pytest.raises(pytest.fail.Exception, match="built again"):
        build_component(Widths, "widths")


def test_an_interrupted_build_leaves_nothing(private_cache, monkeypatch):
    def interrupted(commands, folder):
        (folder / "half").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "run_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_component(Add, "add")
    assert not list(private_cache.iterdir())


def test_a_failing_command_ends_the_others(tmp_path):
    start = time.monotonic()
    with pytest.raises(ToolchainError, match="`sh` failed with exit code 3: error: oh"):
        toolchain.run_all([["sleep", "60"], ["sh", "-c", "echo fine; echo error: oh; exit 3"]], tmp_path)
    assert time.monotonic() - start < 20


def test_missing_compiler_is_one_sentence(monkeypatch):
    for name in ("find_toolchain", "compiler_command"):
        monkeypatch.setattr(toolchain, name, getattr(toolchain, name).__wrapped__)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError) as caught:
        toolchain.find_toolchain()
    assert str(caught.value).startswith("No C++ compiler (no-such-compiler) was found: run `sudo apt install g++`")


def test_elaboration_is_cached_by_parameters_and_sources(private_cache, monkeypatch):
    def factory():
        made.append(1)
        return Add()

    made = []
    first = component_verilog(factory, "add", GEOMETRY)
    assert component_verilog(factory, "add", Geometry()) == first == generate_verilog(Add(), "add") and len(made) == 1
    component_verilog(factory, "add", Geometry(channel=ChannelGeometry(channels=1)))
    assert len(made) == 2
    monkeypatch.setattr(verilog, "_RTL", ROOT / "sim_models" / "cosim")
    component_verilog(factory, "add", GEOMETRY)
    assert len(made) == 3
    build_component(factory, "add", GEOMETRY)
    build_component(factory, "add", Geometry())
    assert len(made) == 4


@pytest.mark.parametrize(("factory", "beside"), [(partial(WatchDog, GEOMETRY), True),
                                                 (lambda: WatchDog(GEOMETRY), False)])
def test_code_of_a_thread_is_written_in_another_process_if_its_factory_can_be_sent(private_cache, monkeypatch, factory,
                                                                                   beside):
    answers = []
    in_own_process = component._in_own_process
    monkeypatch.setattr(component, "_in_own_process", lambda *of: answers.append(in_own_process(*of)) or answers[-1])
    with ThreadPoolExecutor(1) as thread:
        code = thread.submit(component.component_code, factory, "watchdog", GEOMETRY).result()
    assert answers == [beside] and code == component_text(WatchDog(GEOMETRY), "watchdog", {})


def test_next_values_are_merged_into_their_registers():
    process = """  always @* begin
    if (\\$auto$dump_module$1 ) begin end
    \\$5  = \\pair.a ;
    if (go) begin
      \\$5 [3:1] = \\$4 [2:0];
    end
    if (rst) begin
      \\$5  = 4'h0;
    end
  end
"""
    head = "module a(clk);\n  reg [3:0] \\$5 ;\n"
    register = "  always @(posedge clk)\n    \\pair.a  <= \\$5 ;\n"
    assert write_registers_in_place(head + register + process + "endmodule\n") == """module a(clk);
  always @(posedge clk) begin
    if (go) begin
      \\pair.a [3:1] <= \\$4 [2:0];
    end
    if (rst) begin
      \\pair.a <= 4'h0;
    end
  end
endmodule
"""
    used_elsewhere = head + register + process + "  assign out = \\$5 ;\nendmodule\n"
    assert write_registers_in_place(used_elsewhere) == used_elsewhere
