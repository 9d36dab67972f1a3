"""From LLVM IR text to the addresses of native functions, through llvmlite.

llvmlite loads on first use. Kernels arrive vectorised, unrolled and without repeated expressions, so all that runs
before code generation is inlining, promotion of stack slots to registers and removal of empty blocks: value numbering
and instruction combining took a fifth of a compilation and made no kernel measured faster, some slower. For the same
reason the code generator works at its first level and without the passes in ``_WITHOUT``, which rewrite the IR once
more; they are switched off while modules of ours are generated and back on for other users of LLVM in the process.

Modules are compiled in several threads at once: each has a context and a target machine of its own, and llvmlite's
lock, which lets one thread into LLVM at a time, is left out of the three calls that take long.

Compiled code lives as long as the process: a worker thread may sleep inside it until the very end.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import CompileError

_PASSES = ("add_always_inliner_pass", "add_sroa_pass", "add_simplify_cfg_pass")
_OPTIMISATION_LEVEL = 1  # of the code generator
_WITHOUT = ("disable-lsr", "disable-cgp", "disable-constant-hoisting", "disable-partial-libcall-inlining")

_lock = threading.RLock()
_changed = threading.Condition(_lock)  # one of the two numbers below has become 0
_compiling = 0  # modules at the moment
_forking = 0  # threads that are about to fork
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
        self.calls = _Calls(llvm.ffi.lib._name)
        self.cpu = llvm.get_host_cpu_name()
        self.features = llvm.get_host_cpu_features().flatten()
        self.target = llvm.Target.from_default_triple()
        self.machines: dict[int, list[Any]] = {0: [], _OPTIMISATION_LEVEL: []}  # that no thread uses at the moment
        self.jit = llvm.create_lljit_compiler(self._target_machine(_OPTIMISATION_LEVEL), suppress_errors=True)
        self.libraries: list[Any] = []
        _make_immortal(self.jit)
        description = (llvmlite.__version__, llvm.llvm_version_info, self.target.triple, self.cpu, self.features)
        pipeline = (_PASSES, _OPTIMISATION_LEVEL, _WITHOUT)
        self.key = hashlib.sha256(repr((description, pipeline)).encode()).hexdigest()[:16]

    def _target_machine(self, level: int) -> Any:
        # Position-independent code of the small model: constants are addressed relative to the instruction pointer,
        # and the linker makes stubs for functions that lie far away.
        return self.target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=level, reloc="pic", codemodel="small"
        )

    @contextmanager
    def machine(self, level: int) -> Iterator[Any]:
        """A target machine for this thread alone."""
        try:
            machine = self.machines[level].pop()
        except IndexError:
            machine = self._target_machine(level)
        yield machine
        self.machines[level].append(machine)

    def emit(self, ir_text: str, level: int, assembly: bool = False) -> bytes:
        """The object code, or the assembly, of a module; optimised, unless ``level`` is 0."""
        module = self._parse(ir_text)
        with self.machine(level) as machine:
            if level:
                self._optimise(module, machine)
            return self.calls.emit(self.llvm, machine, module, assembly)

    def _parse(self, ir_text: str) -> Any:
        try:
            module = self.calls.parse(self.llvm, ir_text)
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

    def _optimise(self, module: Any, machine: Any) -> None:
        llvm = self.llvm
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        passes = llvm.create_new_module_pass_manager()
        for name in _PASSES:
            getattr(passes, name)()
        self.calls.run(passes, module, builder)

    def set_options(self, without: bool) -> None:
        for name in _WITHOUT:
            self.llvm.set_option("", f"-{name}={'true' if without else 'false'}")

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


class _Calls:
    """The calls into LLVM that take long, without llvmlite's lock around them.

    LLVM lets threads work at once on modules of different contexts.
    """

    def __init__(self, library: str) -> None:
        functions = ctypes.CDLL(library)
        pointer, message = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
        self._parse = functions.LLVMPY_ParseAssembly
        self._parse.restype, self._parse.argtypes = pointer, [pointer, ctypes.c_char_p, message]
        self.run = functions.LLVMPY_RunNewModulePassManager
        self.run.restype, self.run.argtypes = None, [pointer, pointer, pointer]
        self._emit = functions.LLVMPY_TargetMachineEmitToMemory
        self._emit.restype, self._emit.argtypes = pointer, [pointer, pointer, ctypes.c_int, message]
        self._start = functions.LLVMPY_GetBufferStart
        self._start.restype, self._start.argtypes = pointer, [pointer]
        self._size = functions.LLVMPY_GetBufferSize
        self._size.restype, self._size.argtypes = ctypes.c_size_t, [pointer]
        self._dispose = functions.LLVMPY_DisposeMemoryBuffer
        self._dispose.restype, self._dispose.argtypes = None, [pointer]

    def parse(self, llvm: Any, ir_text: str) -> Any:
        """A module in a context of its own."""
        context = llvm.create_context()
        with llvm.ffi.OutputString() as message:
            module = self._parse(context, ir_text.encode(), message)
            if not module:
                raise RuntimeError(str(message))
        return llvm.ModuleRef(ctypes.cast(module, llvm.ffi.LLVMModuleRef), context)

    def emit(self, llvm: Any, machine: Any, module: Any, assembly: bool) -> bytes:
        with llvm.ffi.OutputString() as message:
            buffer = self._emit(machine, module, not assembly, message)
            if not buffer:
                raise CompileError(f"LLVM cannot generate code: {message}")
        try:
            return ctypes.string_at(self._start(buffer), self._size(buffer))
        finally:
            self._dispose(buffer)


def _make_immortal(resource: Any) -> None:
    """Keep llvmlite from freeing ``resource`` at shutdown, when threads may still run its code."""
    resource._owned = True


def _get_engine() -> _Engine:
    global _engine
    if _engine is None:
        _engine = _Engine()
    return _engine


@contextmanager
def _compilation() -> Iterator[_Engine]:
    """Around each use of the code generator: several may run at once."""
    global _compiling
    with _lock:
        while _forking:
            _changed.wait()
        engine = _get_engine()
        if not _compiling:
            engine.set_options(without=True)
        _compiling += 1
    try:
        yield engine
    finally:
        with _lock:
            _compiling -= 1
            if not _compiling:
                engine.set_options(without=False)
                _changed.notify_all()


def _before_fork() -> None:
    """A child must inherit neither a lock that another thread holds nor LLVM in the middle of its work."""
    global _forking
    _lock.acquire()
    _forking += 1
    while _compiling:
        _changed.wait()


def _after_fork(others: int) -> None:
    """others: threads besides that are about to fork; there are none in a child."""
    global _forking
    _forking = others
    _changed.notify_all()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(_forking - 1),
        after_in_child=lambda: _after_fork(0),
    )


def compile_ir(ir_text: str, names: Iterable[str], quick: bool = False) -> dict[str, int]:
    """Compile a module and return the address of each function in ``names``.

    Modules do not see each other's symbols, so names need to be unique only within a module. Undefined functions are
    looked up in the process (libc, libm). ``quick``: unoptimised, in a fifth of the time; for glue code without loops
    over elements.

    Raises CompileError where LLVM rejects the text, or a symbol (a name asked for, or a function called) is missing.
    """
    return load_object(emit_object(ir_text, quick), names)


def emit_object(ir_text: str, quick: bool = False) -> bytes:
    """The relocatable object code of a module, for ``load_object`` now or, from a disk cache, in a later process.
    Several threads may call it at once."""
    global _compile_count
    with _compilation() as engine:
        with _lock:
            _compile_count += 1
        return engine.emit(ir_text, 0 if quick else _OPTIMISATION_LEVEL)


def load_object(code: bytes, names: Iterable[str]) -> dict[str, int]:
    """Link object code that ``emit_object`` made under the same ``target_key`` into the process."""
    with _lock:
        return _get_engine().load_object(code, names)


def emit_assembly(ir_text: str) -> str:
    """The host's assembly for a module: for reading, not for running."""
    with _compilation() as engine:
        return engine.emit(ir_text, _OPTIMISATION_LEVEL, assembly=True).decode()


def target_key() -> str:
    """Identifies everything that object code depends on beside the IR: LLVM, the CPU and its features, the pipeline."""
    with _lock:
        return _get_engine().key


def compile_count() -> int:
    """How many modules LLVM has compiled in this process."""
    return _compile_count
