"""The disk cache of object code: a second process compiles nothing, and nothing damaged or foreign is loaded."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pullback.errors import PullbackWarning
from pullback.graph import state
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


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_warned", set())


@contextmanager
def told_once(what: str) -> Iterator[None]:
    """One warning that matches ``what``, whose line is that of this test and not of the package; not one more."""
    with pytest.warns(PullbackWarning, match=what) as found:
        yield
    assert len(found) == 1
    assert found[0].filename == __file__


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
        lambda data: b"\x7fELF" + data[4:],
    ],
)
def test_a_damaged_entry_is_compiled_again(cache: Path, damage: Any) -> None:
    expect(103, 1, 0)
    (path,) = entries(cache)
    with told_once(f"{path.name}.* is damaged: it is compiled again"):
        for _ in range(2):
            path.write_bytes(damage(path.read_bytes()))
            expect(103, 1, 0)
    expect(103, 0, 1)  # and has been replaced


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_an_entry_that_is_no_file(cache: Path) -> None:
    """Nobody waits for what a pipe might give."""
    expect(108, 1, 0)
    (path,) = entries(cache)
    path.unlink()
    os.mkfifo(path)
    with told_once("could have been written by others"):
        expect(108, 1, 0)
    expect(108, 0, 1)
    (path,) = entries(cache)
    path.unlink()
    path.mkdir()
    with pytest.warns(PullbackWarning, match="cannot be written"):  # the other cause has been told
        expect(108, 1, 0)
    expect(108, 1, 0)


def test_code_that_does_not_link_is_compiled_again(cache: Path) -> None:
    expect(104, 1, 0)
    expect(105, 1, 0)
    first, second = entries(cache)
    wrong = llvm_engine.emit_object(IR.format(n=1).replace("@f", "@g"))
    for path in (first, second):
        object_cache._write(path, wrong)
    with told_once("does not link"):
        expect(104, 1, 0)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
def test_what_others_could_write_is_not_loaded(cache: Path, tmp_path: Path) -> None:
    expect(106, 1, 0)
    (path,) = entries(cache)
    path.chmod(0o666)
    with told_once("could have been written by others"):
        expect(106, 1, 0)
    (path,) = entries(cache)
    assert path.stat().st_mode & 0o077 == 0
    moved = tmp_path / "elsewhere"
    path.rename(moved)
    path.symlink_to(moved)
    expect(106, 1, 0)
    assert not path.is_symlink()
    cache.chmod(0o777)
    with told_once("others may write to"):
        expect(106, 1, 0)
    cache.chmod(0o700)
    expect(106, 0, 1)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
def test_another_user_s_directory_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect(106, 1, 0)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with told_once("others may write to"):
        expect(106, 1, 0)


def test_a_link_in_place_of_the_directory(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache.parent.mkdir()
    cache.symlink_to(elsewhere)
    with told_once("is a link"):
        expect(106, 1, 0)
    assert not list(elsewhere.iterdir())


def test_without_a_usable_directory_everything_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "")  # wanted: nothing to tell
    expect(107, 1, 0)
    for value, fault in (
        (str(file), "is no directory"), (str(file / "below"), "cannot be used"), ("/proc/nowhere", "cannot be used"),
        ("/" + "x" * 300, "cannot be used"),
    ):  # fmt: skip
        monkeypatch.setenv("PULLBACK_CACHE_DIR", value)
        monkeypatch.setattr(state, "_warned", set())
        with told_once(f"compiled code is not kept on disk: .*{fault}.*PULLBACK_CACHE_DIR"):
            expect(107, 1, 0)
            expect(107, 1, 0)


def test_where_the_directory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULLBACK_CACHE_DIR", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform.startswith("linux"):
        assert object_cache.directory() == tmp_path / "xdg" / "pullback"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with told_once("there is no home directory"):
        expect(107, 1, 0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Full, or read-only."""
    if code == errno.ENOSPC and not os.path.exists("/dev/full"):
        pytest.skip("no device that is always full")
    real = object_cache.tempfile.mkstemp

    def mkstemp(**options: Any) -> tuple[int, str]:
        if code == errno.EROFS:
            raise OSError(code, os.strerror(code))
        descriptor, name = real(**options)
        os.close(descriptor)
        # What is written to this device fails as on a full disk.
        return os.open("/dev/full", os.O_WRONLY), name

    monkeypatch.setattr(object_cache.tempfile, "mkstemp", mkstemp)
    with told_once(f"not kept on disk: .*cannot be written: {os.strerror(code)}"):
        for n in (120, 121):
            expect(n, 1, 0)
    assert not list(cache.iterdir())  # nothing half written is left


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on files")
def test_a_program_on_a_full_disk(cache: Path) -> None:
    """The whole way: no entry fits, one warning, and the right numbers."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    result = subprocess.run(
        [sys.executable, "-c", limit + PROGRAM], env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.splitlines()[0] == run({"PULLBACK_CACHE_DIR": ""})[0]
    assert result.stderr.count("PullbackWarning") == 1
    assert "cannot be written: File too large" in result.stderr
    assert not list(cache.iterdir())


def test_a_size_that_is_no_number(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("much", "-1", "1e9"):
        monkeypatch.setenv("PULLBACK_CACHE_SIZE", text)
        monkeypatch.setattr(state, "_warned", set())
        with told_once("PULLBACK_CACHE_SIZE must be a number of bytes"):
            assert object_cache._size_limit() == object_cache._DEFAULT_SIZE
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", " 1000 ")
    assert object_cache._size_limit() == 1000


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
