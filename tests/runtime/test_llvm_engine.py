"""Compiling LLVM IR text to callable addresses."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from pullback.errors import CompileError
from pullback.runtime import llvm_engine

ADD = "define i64 @f(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"
INTEGER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def test_compile_and_call() -> None:
    before = llvm_engine.compile_count()
    text = ADD.format(n=5) + ADD.format(n=7).replace("@f", "@g")
    address = llvm_engine.compile_ir(text, ["g", "f"])
    assert llvm_engine.compile_count() == before + 1
    assert INTEGER(address["f"])(1) == 6
    assert INTEGER(address["g"])(1) == 8


@pytest.mark.parametrize("quick", [False, True])
def test_modules_may_use_the_same_names(quick: bool) -> None:
    first = llvm_engine.compile_ir(ADD.format(n=1), ["f"], quick)
    second = llvm_engine.compile_ir(ADD.format(n=2), ["f"], quick)
    assert INTEGER(first["f"])(0) == 1
    assert INTEGER(second["f"])(0) == 2


def test_libc_functions_are_found() -> None:
    text = "declare i64 @labs(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @labs(i64 %x)\n  ret i64 %y\n}\n"
    assert INTEGER(llvm_engine.compile_ir(text, ["f"])["f"])(-3) == 3


def test_errors() -> None:
    with pytest.raises(CompileError, match="expected type"):
        llvm_engine.compile_ir("define garbage", ["f"])
    undominated = "define i64 @f() {\n  %y = add i64 %x, 1\n  %x = add i64 1, 1\n  ret i64 %y\n}\n"
    with pytest.raises(CompileError, match="does not dominate"):
        llvm_engine.compile_ir(undominated, ["f"])
    missing = "declare i64 @no_such_function(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @no_such_function(i64 %x)\n"
    with pytest.raises(CompileError, match="no_such_function"):
        llvm_engine.compile_ir(missing + "  ret i64 %y\n}\n", ["f"])
    with pytest.raises(CompileError, match="h"):
        llvm_engine.compile_ir(ADD.format(n=1), ["h"])
    # A failure leaves the engine usable.
    assert INTEGER(llvm_engine.compile_ir(ADD.format(n=4), ["f"])["f"])(0) == 4


def test_errors_print_nothing() -> None:
    code = """
from pullback.runtime import llvm_engine
for text in ("define garbage", "define void @g() {\\n ret void\\n}"):
    try:
        llvm_engine.compile_ir(text, ["f"])
    except RuntimeError:
        pass
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_objects_survive_on_their_own() -> None:
    code = llvm_engine.emit_object(ADD.format(n=11))
    assert isinstance(code, bytes)
    assert INTEGER(llvm_engine.load_object(code, ["f"])["f"])(1) == 12
    assert INTEGER(llvm_engine.load_object(code, ["f"])["f"])(2) == 13


def test_target_key_is_stable() -> None:
    assert llvm_engine.target_key() == llvm_engine.target_key()


def test_redundant_work_is_removed() -> None:
    lines = "".join(f"  %a{i} = mul i64 %x, %x\n  %s{i + 1} = xor i64 %s{i}, %a{i}\n" for i in range(9))
    text = f"define i64 @f(i64 %x) {{\n  %s0 = add i64 %x, 0\n{lines}  ret i64 %s9\n}}\n"
    assert llvm_engine.emit_assembly(text).count("mul") == 1


def test_threads_compile_at_once() -> None:
    results: dict[int, int] = {}

    def work(n: int) -> None:
        results[n] = INTEGER(llvm_engine.compile_ir(ADD.format(n=n), ["f"])["f"])(0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: n for n in range(8)}


def test_code_does_not_depend_on_what_else_is_compiled() -> None:
    texts = [
        "define i64 @f(i64 %x) {\n"
        + "".join(f"  %y{i} = mul i64 %{f'y{i - 1}' if i else 'x'}, {i + n}\n" for i in range(200))
        + "  ret i64 %y199\n}\n"
        for n in range(12)
    ]
    alone = [llvm_engine.emit_object(text) for text in texts]
    together: dict[int, bytes] = {}

    def work(n: int) -> None:
        together[n] = llvm_engine.emit_object(texts[n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[n] for n in range(12)] == alone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_waits_until_nothing_is_compiled() -> None:
    code = f"""
import os, threading
from pullback.runtime import llvm_engine
text = {ADD!r}
stop = threading.Event()
def work():
    while not stop.is_set():
        llvm_engine.emit_object(text.format(n=1))
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        llvm_engine.compile_ir(text.format(n=2), ["f"])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
print("done")
"""
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "done", result.stderr


def test_importing_the_package_does_not_load_llvm() -> None:
    code = "import sys, pullback.runtime.driver, pullback.runtime.blas; print('llvmlite' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.strip() == "False"


def test_another_user_of_llvm_keeps_loop_strength_reduction() -> None:
    """The option is global to LLVM; it is only set while a module of ours is generated."""
    import llvmlite.binding as llvm

    llvm_engine.compile_ir(ADD.format(n=1), ["f"])
    loop = """
define i64 @f(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %s = phi i64 [0, %entry], [%s1, %loop]
  %k = mul i64 %i, 7
  %s1 = add i64 %s, %k
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %n
  br i1 %c, label %loop, label %done
done:
  ret i64 %s1
}
"""
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    reduced = machine.emit_assembly(llvm.parse_assembly(loop))
    llvm.set_option("", "-disable-lsr=true")
    try:
        plain = machine.emit_assembly(llvm.parse_assembly(loop))
    finally:
        llvm.set_option("", "-disable-lsr=false")
    assert reduced != plain
