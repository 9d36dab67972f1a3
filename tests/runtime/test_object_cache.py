"""The disk cache of object code: a second process compiles nothing, and nothing damaged or foreign is loaded."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pullback.runtime import llvm_engine, object_cache

IR = "define i64 @f(i64 %x) {{\n  %y = add i64 %x, {n}\n  ret i64 %y\n}}\n"
INTEGER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

PROGRAM = """
import numpy as np
import pullback as pb
from pullback.runtime import llvm_engine, object_cache
f = pb.jit(pb.value_and_grad(lambda w, x: pb.sum(pb.tanh(x @ w) ** 2)))
w, x = np.linspace(-1, 1, 12).reshape(4, 3), np.linspace(0, 1, 20).reshape(5, 4)
value, gradient = f(w, x)
print(float(value).hex(), np.asarray(gradient).tobytes().hex())
print(llvm_engine.compile_count(), object_cache.hit_count())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "deep" / "cache"
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(root))
    return root


def compiled(n: int) -> int:
    """f(0) of the module that adds ``n``, which is compiled or loaded."""
    found = object_cache.compile_text(IR.format(n=n), ["f"])
    return INTEGER(found["f"])(0)


def counts() -> tuple[int, int]:
    return llvm_engine.compile_count(), object_cache.hit_count()


def expect(n: int, compilations: int, hits: int) -> None:
    before = counts()
    assert compiled(n) == n
    after = counts()
    assert (after[0] - before[0], after[1] - before[1]) == (compilations, hits)


def entries(root: Path) -> list[Path]:
    return sorted(root.glob("*.obj"))


def run(environment: dict[str, str]) -> tuple[str, int, int]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    values, numbers = result.stdout.splitlines()
    compilations, hits = map(int, numbers.split())
    return values, compilations, hits


def test_a_second_process_compiles_nothing(cache: Path) -> None:
    cold = run({})
    assert cold[1] > 0
    assert cold[2] == 0
    warm = run({})
    assert warm[0] == cold[0]
    assert warm[1:] == (0, cold[1])
    other = run({"PULLBACK_TARGET": "generic128"})  # another instruction set is another entry
    assert other[1] > 0
    off = run({"PULLBACK_CACHE_DIR": ""})
    assert off == (cold[0], cold[1], 0)


def test_an_entry_is_private_and_used_again(cache: Path) -> None:
    expect(101, 1, 0)
    expect(101, 0, 1)
    expect(102, 1, 0)
    assert len(entries(cache)) == 2
    assert not list(cache.glob(".new-*"))
    if hasattr(os, "getuid"):
        assert cache.stat().st_mode & 0o777 == 0o700
        assert all(path.stat().st_mode & 0o077 == 0 for path in entries(cache))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"PBOBJ0\n" + data[7:],
        lambda data: data + b"more",
    ],
)
def test_a_damaged_entry_is_compiled_again(cache: Path, damage) -> None:  # type: ignore[no-untyped-def]
    expect(103, 1, 0)
    (path,) = entries(cache)
    path.write_bytes(damage(path.read_bytes()))
    expect(103, 1, 0)
    expect(103, 0, 1)  # and has been replaced


def test_code_that_does_not_link_is_compiled_again(cache: Path) -> None:
    expect(104, 1, 0)
    expect(105, 1, 0)
    first, second = entries(cache)
    wrong = llvm_engine.emit_object(IR.format(n=1).replace("@f", "@g"))
    for path in (first, second):
        object_cache._write(path, wrong)
    expect(104, 1, 0)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
def test_what_others_could_write_is_not_loaded(cache: Path, tmp_path: Path) -> None:
    expect(106, 1, 0)
    (path,) = entries(cache)
    path.chmod(0o666)
    expect(106, 1, 0)
    (path,) = entries(cache)
    assert path.stat().st_mode & 0o077 == 0
    moved = tmp_path / "elsewhere"
    path.rename(moved)
    path.symlink_to(moved)
    expect(106, 1, 0)
    assert not path.is_symlink()
    cache.chmod(0o777)
    expect(106, 1, 0)
    cache.chmod(0o700)
    expect(106, 0, 1)


def test_without_a_usable_directory_everything_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for value in ("", str(file), str(file / "below"), "/proc/nowhere"):
        monkeypatch.setenv("PULLBACK_CACHE_DIR", value)
        expect(107, 1, 0)
    monkeypatch.delenv("PULLBACK_CACHE_DIR")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert object_cache.directory() == tmp_path / "xdg" / "pullback"


def test_the_least_recently_used_entries_go_first(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "_WRITES_BETWEEN_SWEEPS", 1)
    for n in range(110, 114):
        expect(n, 1, 0)
    size = entries(cache)[0].stat().st_size
    now = time.time()
    for age, path in enumerate(sorted(entries(cache), key=lambda p: p.stat().st_mtime_ns, reverse=True)):
        os.utime(path, (now - 10_000 * (age + 1),) * 2)
    expect(110, 0, 1)  # the oldest, now used again
    abandoned = cache / ".new-abandoned"
    abandoned.write_bytes(b"x" * 10)
    os.utime(abandoned, (now - 10_000,) * 2)
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", str(3 * size + 1))
    expect(114, 1, 0)
    assert len(entries(cache)) == 3
    assert not abandoned.exists()
    expect(110, 0, 1)
    expect(114, 0, 1)
    expect(113, 0, 1)
    expect(111, 1, 0)
