"""Memory of evaluated values: aligned blocks that are kept and used again.

A fresh block of several megabytes costs a page fault for every 4 KiB on first touch, more than the kernel that fills
it. So freed blocks go to free lists by size class (four classes an octave, at most a fifth wasted) and are handed out
again. What the lists may hold is bounded.

``Buffer.__del__`` may run at any bytecode of any thread, inside ``allocate`` and during interpreter shutdown too. The
free lists are therefore touched by single atomic list operations only: there is no lock to deadlock on, and totals are
recomputed where they are needed instead of being maintained.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections import deque
from sys import getrefcount
from typing import Any

import numpy as np

from ..errors import DeviceError

ALIGNMENT = 64
_LARGE = 1 << 20  # bytes; from here on the total is bounded, below it each class is
_SMALL_CLASS_BYTES = 4 << 20
_SMALL_CLASS_BLOCKS = 1024
_CACHE_BYTES = 1 << 30
_MEMO_ENTRIES = 1 << 14
# The system gives large blocks that all begin alike within a page. A kernel that walks through eight or more of them at
# one pace (an optimizer's step) then crowds a single set of the first-level cache: it took half as long again. So each
# new block begins 17 cache lines further into its page than the one before.
_STAGGERED = 1 << 15
_PAGE = 4096
_STAGGER = 17 * 64

RECYCLED_BYTES = 1 << 12  # programs keep a few buffers up to this size; larger ones are worth their time
KEPT_ARENA_BYTES = 1 << 16  # and an arena for each thread that calls them, up to this one: that of a small product

Block = tuple[int, "np.ndarray[Any, Any]"]  # aligned address, the array that owns the memory


class FreeList(list[Block]):
    """The free blocks of one size class."""

    __slots__ = ("large", "limit", "size")

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.large = size >= _LARGE
        self.limit = 0 if self.large else min(_SMALL_CLASS_BLOCKS, _SMALL_CLASS_BYTES // size)


class _View:
    """Presents a buffer's memory to NumPy; the array keeps this object as its base, and so keeps the buffer."""

    __slots__ = ("__array_interface__", "buffer")

    def __init__(self, buffer: Buffer, interface: dict[str, Any]) -> None:
        self.buffer = buffer
        self.__array_interface__ = interface


class Buffer:
    """``nbytes`` bytes of host memory at ``address``.

    owner: the block of the caching allocator, or the foreign object (a NumPy array) that the memory belongs to.
    free_list: where the block goes when the buffer dies; None for foreign memory, which Pullback never writes to.
    """

    __slots__ = ("__weakref__", "address", "free_list", "nbytes", "owner")

    def __init__(self, address: int, nbytes: int, owner: Any, free_list: FreeList | None = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self.free_list = free_list

    @property
    def owned(self) -> bool:
        """Whether the memory is Pullback's own, so that a program may reuse it in place once nobody else holds it."""
        return self.free_list is not None

    def numpy(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """A read-only C-contiguous array of ``shape`` and NumPy ``dtype`` over this memory; it keeps the buffer alive.

        Raises DeviceError where the array would not fit.
        """
        return self._array(shape, dtype, True)

    def writable(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """The same array, writable: for filling memory fresh from ``allocate`` before anybody else sees it."""
        return self._array(shape, dtype, False)

    def _array(self, shape: tuple[int, ...], dtype: Any, readonly: bool) -> np.ndarray[Any, Any]:
        dtype = np.dtype(dtype)
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size > self.nbytes:
            raise DeviceError(f"an array of {size} bytes does not fit in a buffer of {self.nbytes}")
        typestr, own = _typestrs.get(dtype) or _typestr(dtype)
        interface = {"version": 3, "shape": shape, "typestr": typestr, "data": (self.address, readonly)}
        array = np.asarray(_View(self, interface))
        return array if own else array.view(dtype)

    def __del__(self) -> None:
        free_list = self.free_list
        if free_list is not None:
            if len(free_list) < free_list.limit:
                free_list.append(self.owner)
            elif free_list.large:
                _recycle_large(free_list, self.owner)

    def __repr__(self) -> str:
        return f"<Buffer of {self.nbytes} bytes at {self.address:#x}>"


_typestrs: dict[np.dtype[Any], tuple[str, bool]] = {}
_free_lists: dict[int, FreeList] = {}  # size class -> its list
_by_size: dict[int, FreeList] = {}  # bytes asked for -> the list of their class; a memo
_stagger = itertools.count()


def _typestr(dtype: np.dtype[Any]) -> tuple[str, bool]:
    """The array-interface code of ``dtype``, and whether it names that very type: bfloat16's code does not."""
    result = _typestrs[dtype] = (dtype.str, np.dtype(dtype.str) == dtype)
    return result


def cache_limit() -> int:
    """Bytes that free large blocks may hold together: 1 GiB, or a quarter of the memory where that is less."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _CACHE_BYTES
    return min(_CACHE_BYTES, memory // 4) if memory > 0 else _CACHE_BYTES


# The defaults bind what a call during interpreter shutdown can no longer look up in the module.
def _recycle_large(
    free_list: FreeList, block: Block, limit: int = cache_limit(), lists: dict[int, FreeList] = _free_lists
) -> None:
    """Keep ``block``, and drop the oldest blocks of other classes, then of its own, where the limit is passed."""
    if free_list.size > limit:
        return
    free_list.append(block)
    excess = -limit
    classes = list(lists.values())
    for other in classes:
        if other.large:
            excess += other.size * len(other)
    if excess <= 0:
        return
    for other in [*(other for other in classes if other.large and other is not free_list), free_list]:
        while excess > 0:
            try:
                del other[0]
            except IndexError:
                break
            excess -= other.size


def _size_class(nbytes: int) -> int:
    """The smallest class that holds ``nbytes``: 64, 128, 192, 256, 320, 384, 448, 512, 640, ..."""
    if nbytes <= ALIGNMENT:
        return ALIGNMENT
    shift = (nbytes - 1).bit_length() - 3
    return ((((nbytes - 1) >> shift) + 1) << shift) + ALIGNMENT - 1 & -ALIGNMENT


def _free_list(nbytes: int) -> FreeList:
    size = _size_class(nbytes)
    free_list = _free_lists.setdefault(size, FreeList(size))
    if len(_by_size) >= _MEMO_ENTRIES:
        _by_size.clear()
    _by_size[nbytes] = free_list
    return free_list


def padded(nbytes: int) -> int:
    """Bytes to set aside for ``nbytes`` inside a larger block: what follows begins aligned, elsewhere in its page."""
    nbytes += -nbytes % ALIGNMENT
    return nbytes + (_STAGGER - nbytes) % _PAGE if nbytes >= _STAGGERED else nbytes


def _new_block(size: int) -> Block:
    slack, shift = ALIGNMENT, 0
    if size >= _STAGGERED:
        slack, shift = ALIGNMENT + _PAGE, next(_stagger) * _STAGGER % _PAGE
    try:
        memory = np.empty(size + slack, np.uint8)
    except (MemoryError, ValueError):
        release_cached()
        try:
            memory = np.empty(size + slack, np.uint8)
        except (MemoryError, ValueError):
            raise DeviceError(f"cannot allocate {size} bytes of host memory") from None
    return ((_address(memory) + ALIGNMENT - 1 & -ALIGNMENT) + shift, memory)


def allocate(nbytes: int) -> Buffer:
    """A buffer of ``nbytes`` bytes (0 is fine) with undefined contents, aligned to 64 bytes.

    Raises DeviceError where the system has not that much memory.
    """
    free_list = _by_size.get(nbytes)
    if free_list is None:
        free_list = _free_list(nbytes)
    try:
        block = free_list.pop() if free_list else _new_block(free_list.size)
    except IndexError:  # another thread took the last one
        block = _new_block(free_list.size)
    return Buffer(block[0], nbytes, block, free_list)


# A few small buffers that one program gives its results in, again and again.
Ring = deque[Buffer]


def new_ring() -> Ring:
    """For :func:`recycled`: a loop's state needs two buffers, and one more is with whoever looks at it."""
    return deque(maxlen=3)


def recycled(ring: Ring, nbytes: int) -> Buffer:
    """A buffer of ``nbytes`` bytes with undefined contents: one of the ring that nobody else holds any more, or a new
    one, which joins the ring. A buffer has to be made and finalised; to find one again takes a tenth of the time."""
    try:
        buffer = ring.popleft()
    except IndexError:  # none yet, or other threads have them
        buffer = allocate(nbytes)
    else:
        if getrefcount(buffer) > _FREE:
            ring.append(buffer)
            buffer = allocate(nbytes)
    ring.append(buffer)
    return buffer


def _count(ring: Ring) -> int:
    """The references that ``recycled`` counts of a buffer that nobody holds, on this interpreter."""
    buffer = ring.popleft()
    return getrefcount(buffer)


def _calibrate() -> int:
    return _count(deque([Buffer(0, 0, None)]))


_FREE = _calibrate()


def from_numpy(array: np.ndarray[Any, Any], copy: bool = False) -> Buffer:
    """The values of ``array`` in C order as a buffer.

    The memory is shared, and ``array`` kept alive, where ``array`` is C-contiguous, aligned and in native byte order
    and ``copy`` is false; else it is copied.
    """
    flags = array.flags
    if copy or not (flags.c_contiguous and flags.aligned and array.dtype.isnative):
        buffer = allocate(array.nbytes)
        np.copyto(buffer.writable(array.shape, array.dtype.newbyteorder("=")), array)
        return buffer
    return Buffer(_address(array), array.nbytes, array)


def _address(array: Any) -> int:
    try:  # three times as fast as NumPy's own ways to ask
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or a type without a buffer code
        address: int = array.__array_interface__["data"][0]
        return address


def cached_bytes() -> int:
    """Bytes that the free lists hold."""
    return sum(free_list.size * len(free_list) for free_list in list(_free_lists.values()))


def release_cached() -> None:
    """Give all free blocks back to the system."""
    for free_list in list(_free_lists.values()):
        free_list.clear()
