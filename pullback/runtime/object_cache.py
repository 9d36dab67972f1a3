"""Object code kept on disk, so that a second process compiles nothing.

An entry is one file, named by everything that its code depends on: what the code was made from, the sources of this
package that make it, LLVM, the processor and its features. It is written under a temporary name and renamed, carries a
checksum, and is read only if the directory and the file belong to the user and nobody else may write them. Whatever is
damaged, foreign or unreadable is compiled again; nothing here can make a program fail. What is not as it should be is
told once a process, as a PullbackWarning.

``PULLBACK_CACHE_DIR`` names the directory, and switches the cache off where it is empty. Without it the cache lies in
the user's cache directory. Entries that were not used for longest are removed when all of them together pass
``PULLBACK_CACHE_SIZE`` bytes (256 MiB).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from ..errors import CompileError
from ..graph.state import warn_once
from . import llvm_engine

ENVIRONMENT_VARIABLE = "PULLBACK_CACHE_DIR"
SIZE_VARIABLE = "PULLBACK_CACHE_SIZE"

_MAGIC = b"PBOBJ1\n"
_DIGEST = hashlib.sha256
_DEFAULT_SIZE = 256 << 20
_SUFFIX = ".obj"
_WRITES_BETWEEN_SWEEPS = 64
_TOUCH_AFTER = 3600.0  # seconds: a file's time of last use is written no more often

_hits = 0
_writes = 0


def compile_text(ir_text: str, names: Iterable[str], quick: bool = False) -> dict[str, int]:
    """As ``llvm_engine.compile_ir``, from the disk if the module is there."""
    return compile_cached(ir_text.encode(), names, lambda: ir_text, quick)


def compile_cached(
    source: bytes, names: Iterable[str], make_ir: Callable[[], str], quick: bool = False
) -> dict[str, int]:
    """The address of each function in ``names`` of the module that ``make_ir`` writes.

    source: what the module's text depends on, and nothing else does. ``make_ir`` is called only if the module is not
    on disk. Raises CompileError as ``llvm_engine.compile_ir`` does.
    """
    names = list(names)
    return find(source, names, quick) or compile_and_keep(source, names, make_ir(), quick)


def find(source: bytes, names: list[str], quick: bool = False) -> dict[str, int] | None:
    """As ``compile_cached``; None if the module is not on disk."""
    global _hits
    path = _entry(source, quick)
    code = None if path is None else _read(path)
    if path is None or code is None:
        return None
    try:
        addresses = llvm_engine.load_object(code, names)
    except CompileError:
        _warn_of_entry(path, "does not link")
        return None
    _hits += 1
    return addresses


def compile_and_keep(source: bytes, names: list[str], ir_text: str, quick: bool = False) -> dict[str, int]:
    """As ``compile_cached``, of a module that is not on disk. Several threads may call it at once."""
    code = llvm_engine.emit_object(ir_text, quick)
    addresses = llvm_engine.load_object(code, names)  # first: what does not link is not kept
    path = _entry(source, quick)
    if path is not None:
        _write(path, code)
    return addresses


def hit_count() -> int:
    """How many modules this process has taken from the disk."""
    return _hits


# -- names -------------------------------------------------------------------------------------------------------------


def directory() -> Path | None:
    """Where entries are kept; None where there is no cache."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    if chosen is not None:
        return Path(chosen).expanduser() if chosen else None
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pullback"


def _entry(source: bytes, quick: bool) -> Path | None:
    root: Path | None = None
    try:
        root = directory()
        if root is None:
            return None
        fault = _fault(root)
    except OSError as error:
        fault = f"{str(root)!r} cannot be used: {error.strerror or error}"
    except RuntimeError:
        fault = "there is no home directory"
    if root is None or fault is not None:
        warn_once(
            "cache directory",
            f"compiled code is not kept on disk: {fault}. Let {ENVIRONMENT_VARIABLE} name a directory of your own, "
            "or nothing, to do without",
        )
        return None
    name = _DIGEST(b"\0".join([_generator(), llvm_engine.target_key().encode(), b"01"[quick : quick + 1], source]))
    return root / f"{name.hexdigest()}{_SUFFIX}"


@cache
def _generator() -> bytes:
    """A digest of the sources that turn a kernel into LLVM IR."""
    package = Path(__file__).resolve().parent.parent
    found = _DIGEST()
    for folder in ("compiler", "runtime"):
        for path in sorted((package / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.digest()


def _fault(root: Path) -> str | None:
    """Make the directory if need be; why it may not be used: it must be the user's, and closed to others."""
    with contextlib.suppress(FileExistsError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return f"{os.fspath(root)!r} is {'a link' if stat.S_ISLNK(status.st_mode) else 'no directory'}"
    return None if _belongs_to_user(status) else f"others may write to {os.fspath(root)!r}"


def _belongs_to_user(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):  # Windows: the directory lies in the user's profile
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


# -- entries -----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes | None:
    """The object code of an entry, if it is there and whole."""
    # A pipe of that name must not stop us.
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_BINARY", "O_NONBLOCK", "O_CLOEXEC"))
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_of_entry(path, f"cannot be read ({error.strerror})")
        return None
    try:
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not _belongs_to_user(status):
                _warn_of_entry(path, "could have been written by others")
                return None
            data = file.read()
    except OSError as error:
        _warn_of_entry(path, f"cannot be read ({error.strerror})")
        return None
    head = len(_MAGIC) + _DIGEST().digest_size
    code = data[head:]
    if data[:head] != _MAGIC + _DIGEST(code).digest():
        _warn_of_entry(path, "is damaged")
        return None
    _mark_used(path, status)
    return code


def _warn_of_entry(path: Path, fault: str) -> None:
    folder = os.fspath(path.parent)
    warn_once("cache entry", f"the entry {path.name} of compiled code in {folder!r} {fault}: it is compiled again")


def _mark_used(path: Path, status: os.stat_result) -> None:
    if time.time() - status.st_mtime > _TOUCH_AFTER:
        with contextlib.suppress(OSError):
            os.utime(path)


def _write(path: Path, code: bytes) -> None:
    global _writes
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with open(descriptor, "wb") as file:
            file.write(_MAGIC + _DIGEST(code).digest() + code)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        warn_once(
            "cache write",
            f"compiled code is not kept on disk: {os.fspath(path.parent)!r} cannot be written: "
            f"{error.strerror or error}",
        )
        return
    _writes += 1
    if (_writes + os.getpid()) % _WRITES_BETWEEN_SWEEPS == 0:  # a process that writes little seldom sweeps
        _sweep(path.parent)


def _size_limit() -> int:
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if text.isdecimal() and len(text) < 20:
        return int(text)
    if text:
        warn_once(
            SIZE_VARIABLE, f"{SIZE_VARIABLE} must be a number of bytes, got {text!r}: {_DEFAULT_SIZE} are used"
        )
    return _DEFAULT_SIZE


def _sweep(root: Path) -> None:
    """Remove the entries that were not used for longest until the rest fits; and what a killed process left."""
    entries = []
    with contextlib.suppress(OSError), os.scandir(root) as found:
        for item in found:
            status = item.stat(follow_symlinks=False)
            abandoned = item.name.startswith(".new-") and time.time() - status.st_mtime > _TOUCH_AFTER
            if item.name.endswith(_SUFFIX) or abandoned:
                entries.append((0.0 if abandoned else status.st_mtime, status.st_size, item.path))
    total = sum(size for _, size, _ in entries)
    limit = _size_limit()
    for used, size, name in sorted(entries):
        if total <= limit and used:
            break
        with contextlib.suppress(OSError):
            os.unlink(name)
        total -= size
