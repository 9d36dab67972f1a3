"""From LLVM IR text to the addresses of native functions, through llvmlite.

llvmlite loads on first use. Kernels arrive vectorised and unrolled, so all that runs before code generation is global
value numbering: instruction combining took twice as long and left more instructions in the kernels measured, and LLVM's
vectorisers and unrollers have nothing to do. Loop strength reduction, which takes half of the code generator's time on
kernels with many addresses and gains nothing measurable on them, is switched off while one of our modules is generated
and back on for other users of LLVM in the process.

Compiled code lives as long as the process: a worker thread may sleep inside it until the very end.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from typing import Any

from ..errors import CompileError

_PASSES = (
    "add_always_inliner_pass",  # the branches to slow paths of vector functions
    "add_sroa_pass",
    "add_new_gvn_pass",
    "add_instruction_combine_pass",
    "add_simplify_cfg_pass",
)
_OPTIMISATION_LEVEL = 2  # of the code generator

_lock = threading.RLock()
_engine: _Engine | None = None
_compile_count = 0


class _Engine:
    """The LLVM objects that are made once."""

    def __init__(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm = llvm
        self.cpu = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        self.target = llvm.Target.from_default_triple()
        self.machine = self._target_machine(_OPTIMISATION_LEVEL)
        self.quick_machine = self._target_machine(0)
        self.jit = llvm.create_lljit_compiler(self._target_machine(_OPTIMISATION_LEVEL), suppress_errors=True)
        self.libraries: list[Any] = []
        _make_immortal(self.jit)
        description = (llvmlite.__version__, llvm.llvm_version_info, self.target.triple, self.cpu, self.features)
        self.key = hashlib.sha256(repr((description, _PASSES, _OPTIMISATION_LEVEL)).encode()).hexdigest()[:16]

    def _target_machine(self, level: int) -> Any:
        # Position-independent code of the small model: constants are addressed relative to the instruction pointer,
        # and the linker makes stubs for functions that lie far away.
        return self.target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=level, reloc="pic", codemodel="small"
        )

    def emit_object(self, ir_text: str, quick: bool) -> bytes:
        llvm = self.llvm
        module = self._parse(ir_text)
        if quick:
            return bytes(self.quick_machine.emit_object(module))
        self._optimise(module)
        llvm.set_option("", "-disable-lsr=true")
        try:
            return bytes(self.machine.emit_object(module))
        finally:
            llvm.set_option("", "-disable-lsr=false")

    def emit_assembly(self, ir_text: str) -> str:
        module = self._parse(ir_text)
        self._optimise(module)
        return str(self.machine.emit_assembly(module))

    def _parse(self, ir_text: str) -> Any:
        try:
            module = self.llvm.parse_assembly(ir_text)
            module.verify()  # 2% of a compilation; code generation from a malformed module would end the process
        except RuntimeError as error:
            raise CompileError(f"LLVM rejects a module: {str(error).strip()}") from error
        missing = [
            function.name
            for function in module.functions
            if function.is_declaration
            and not function.name.startswith("llvm.")
            and not self.llvm.address_of_symbol(function.name)
        ]
        if missing:
            raise CompileError(f"a module calls functions that the process does not have: {', '.join(missing)}")
        module.triple = self.target.triple
        return module

    def _optimise(self, module: Any) -> None:
        llvm = self.llvm
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(self.machine, options)
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES:
            getattr(passes, name)()
        passes.run(module, builder)

    def load_object(self, code: bytes, names: Iterable[str]) -> dict[str, int]:
        names = list(names)
        builder = self.llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder.export_symbol(name)
        library_name = f"pullback{len(self.libraries)}"
        self.libraries.append(None)  # a failed link uses the name up, too
        try:
            library = builder.link(self.jit, library_name)
        except RuntimeError as error:
            raise CompileError(f"a module cannot be linked: {str(error).strip()}") from error
        _make_immortal(library)
        self.libraries[-1] = library
        return {name: library[name] for name in names}


def _make_immortal(resource: Any) -> None:
    """Keep llvmlite from freeing ``resource`` at shutdown, when threads may still run its code."""
    resource._owned = True


def _get_engine() -> _Engine:
    global _engine
    if _engine is None:
        _engine = _Engine()
    return _engine


if hasattr(os, "register_at_fork"):  # a child must not inherit a lock that another thread held
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def compile_ir(ir_text: str, names: Iterable[str], quick: bool = False) -> dict[str, int]:
    """Compile a module and return the address of each function in ``names``.

    Modules do not see each other's symbols, so names need to be unique only within a module. Undefined functions are
    looked up in the process (libc, libm). ``quick``: unoptimised, in a fifth of the time; for glue code without loops
    over elements.

    Raises CompileError where LLVM rejects the text, or a symbol (a name asked for, or a function called) is missing.
    """
    return load_object(emit_object(ir_text, quick), names)


def emit_object(ir_text: str, quick: bool = False) -> bytes:
    """The relocatable object code of a module, for ``load_object`` now or, from a disk cache, in a later process."""
    global _compile_count
    with _lock:
        _compile_count += 1
        return _get_engine().emit_object(ir_text, quick)


def load_object(code: bytes, names: Iterable[str]) -> dict[str, int]:
    """Link object code that ``emit_object`` made under the same ``target_key`` into the process."""
    with _lock:
        return _get_engine().load_object(code, names)


def emit_assembly(ir_text: str) -> str:
    """The host's assembly for a module: for reading, not for running."""
    with _lock:
        return _get_engine().emit_assembly(ir_text)


def target_key() -> str:
    """Identifies everything that object code depends on beside the IR: LLVM, the CPU and its features, the pipeline."""
    with _lock:
        return _get_engine().key


def compile_count() -> int:
    """How many modules LLVM has compiled in this process."""
    return _compile_count
