"""Machine code of what Python calls, and of nothing else.

numba optimizes every function that it compiles and makes machine code of it. Nearly all of ours are called by other
compiled code only, which takes them in as LLVM's and is optimized as a whole: their own machine code would never run.
"""

# numba's own interfaces for extensions carry no types.
# pyright: reportOptionalCall=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

from typing import Any

from llvmlite import binding
from numba.core import config
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target


class _Library(JITCodeLibrary):
    """A function and what it calls; machine code when an address in it is asked for."""

    _emitted = False

    def _optimize_final_module(self) -> None:
        """Leave it to `_emit`."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True
        if self._disable_inspection:  # it was kept as machine code
            self._emit()

    def _emit(self) -> None:
        self._emitted = True
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)  # numba runs others before: for counted references
        super()._finalize_final_module()
        for variable in self._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                self.codegen.set_env(variable.name, environment)

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        if not self._emitted and any(function.name == name for function in self.get_defined_functions()):
            self._emit()
        return super().get_pointer_to_function(name) if self._emitted else 0

    def serialize_using_object_code(self) -> tuple:
        self._ensure_finalized()
        return super().serialize_using_object_code() if self._emitted else self.serialize_using_bitcode()


class _Codegen(JITCPUCodegen):
    _library_class = _Library

    def _pass_builder(self, opt=None, loop_vectorize=None, slp_vectorize=None, **_kwargs):
        """Tune LLVM: loops are not unrolled, as most of the models' go round once or twice."""
        tuning = binding.create_pipeline_tuning_options()
        tuning.speed_level = config.OPT if opt is None else opt
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
        return binding.create_pass_builder(self._tm, tuning)

    def set_env(self, env_name: str, env: Any) -> None:
        """Give machine code its Python objects. What is none yet gets them when it is emitted."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


def install() -> None:
    """Let numba do so with what it compiles from now on."""
    cpu_target.target_context.codegen().__class__ = _Codegen
