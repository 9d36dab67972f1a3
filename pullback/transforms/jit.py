"""jit: run a function once to record its graph, then run only the compiled program.

The recorded graph is a pure function of the argument leaves and of the *hidden inputs*, the tensors that the function
read from elsewhere; its outputs are what the function returned and the *hidden outputs*, the tensors that it rebound
(see graph/trace.py). A call looks up the *variants* for the types of its arguments, checks their guards, reads the
hidden inputs, runs one program, and writes the hidden outputs back.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any, TypeVar, overload
from weakref import ref

from numpy import ndarray

from .. import dtypes
from ..errors import DTypeError, RangeError, TraceError
from ..graph.state import state
from ..graph.trace import Untraceable, depends_on_placeholder
from ..graph.tracking import open_scope
from ..runtime import evaluate as evaluation
from ..tensor import Tensor
from . import pytree
from .direct import INT64
from .guards import Guarded
from .recording import leaf_kind, record
from .shortcut import LEAVES, find_shortcut
from .variant import IN_LINE, MISS, Variant

F = TypeVar("F", bound=Callable[..., Any])

_MAX_KEYS = 4096  # sets of argument types that are remembered; the oldest goes first
_MAX_NODES = 1 << 18  # in the programs of a function, each of which takes about a kilobyte; beyond, the oldest go too
_MAX_VARIANTS = 64  # for one of them


class Jitted:
    """A compiled function; see :func:`jit`."""

    def __init__(self, function: Callable[..., Any], static_argnames: Iterable[str] = ()) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._variants: dict[Any, list[Variant]] = {}
        self._shortcut: Callable[[tuple[Any, ...], bool], Any] | None = None
        names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self._static_names = frozenset(names)
        self._static_positions = _static_positions(function, names)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        # What is compiled belongs to the process. A module-level function is pickled by name, as without jit.
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Jitted, (self._function, tuple(sorted(self._static_names))))

    def __repr__(self) -> str:
        return f"<jit of {getattr(self._function, '__qualname__', repr(self._function))}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        here = state.__dict__
        if here["trace"] is not None:
            return self._function(*args, **kwargs)
        shortcut = self._shortcut
        if shortcut is not None and not kwargs:
            result = shortcut(args, here["grad_enabled"])
            if result is not MISS and result is not IN_LINE:
                return result
        key: list[Any] = []
        leaves: Sequence[Any] = args
        if kwargs or self._static_names or not LEAVES.issuperset(map(type, args)):
            leaves = self._flatten(args, kwargs, key)
        tensors = 0
        for leaf in leaves:
            kind = type(leaf)
            if kind is Tensor:
                node = leaf._node
                if node.trace is not None:
                    node = leaf.node  # raises: it belongs to a finished trace
                if node.scope is not None and open_scope(node.scope) is not None:
                    return self._function(*args, **kwargs)
                key += (node.shape, node.dtype, node.weak, node.rg)
                tensors += 1
            elif kind is float or (kind is int and leaf in INT64):
                key.append(kind)
            elif kind is ndarray:
                key += (leaf.shape, leaf.dtype)
            else:
                key.append(_leaf_key(leaf, self))
        if tensors > 1 and len(set(map(id, leaves))) != len(leaves):
            aliases = _aliases(leaves)
            if len(set(aliases)) != len(aliases):
                key.append(aliases)
        key += (state.grad_enabled, dtypes._default_float, evaluation._mode)
        found = self._variants.get(tuple(key))
        if found is not None:
            for variant in found:
                result = MISS
                if variant.shortcut and not kwargs:
                    result = variant.shortcut(args, here["grad_enabled"])
                if result is MISS:
                    result = variant(leaves)
                if result is IN_LINE:
                    return self._function(*args, **kwargs)
                if result is not MISS:
                    if not kwargs and not self._static_names:
                        if variant.shortcut is False:
                            variant.shortcut = find_shortcut(args, leaves, variant, key[-3:])
                        self._shortcut = variant.shortcut
                    return result
        if any(map(_has_no_value, leaves)):
            return self._function(*args, **kwargs)
        return self._first_call(tuple(key), leaves, args, kwargs)

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: list[Any]) -> list[Any]:
        """The leaves of all arguments that are not static; structures and static arguments are added to ``key``."""
        leaves: list[Any] = []
        for position, arg in enumerate(args):
            name = self._static_positions.get(position)
            if name is not None:
                key.append(_static_key(arg, f"static argument {name!r}", self))
            else:
                self._flatten_argument(arg, leaves, key)
        for name in sorted(kwargs):
            key.append(name)
            if name in self._static_names:
                key.append(_static_key(kwargs[name], f"static argument {name!r}", self))
            else:
                self._flatten_argument(kwargs[name], leaves, key)
        return leaves

    def _flatten_argument(self, arg: Any, leaves: list[Any], key: list[Any]) -> None:
        if type(arg) in LEAVES:
            leaves.append(arg)
            key.append(None)
            return
        if isinstance(arg, Guarded):
            flat = arg.flat()
            if flat is not None:
                leaves += flat[0]
                key.append(flat[1])
                return
        found, structure = pytree.flatten(arg)
        leaves += found
        try:
            hash(structure)
        except TypeError as error:
            raise TraceError(f"{self!r}: a static part of an argument is not hashable ({error})") from error
        key.append(structure)

    def _first_call(self, key: Any, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record and compile for these types of arguments, then run what was compiled."""
        elsewhere: set[int] = set()
        for variant in self._variants.get(key, ()):
            elsewhere |= variant.captured_ids()
        pinned = [position for position, leaf in enumerate(leaves) if id(leaf) in elsewhere]
        try:
            variant = record(self._function, args, kwargs, self._is_static, pinned)
        except Untraceable:
            return self._function(*args, **kwargs)
        result = variant(leaves, is_new=True)
        if result is not MISS and key[-1] is evaluation._mode:  # else another thread has switched meanwhile
            self._variants[key] = [variant, *self._variants.get(key, [])][:_MAX_VARIANTS]
            self._give_up_oldest(key)
        if result is MISS or result is IN_LINE:
            # Another thread has changed a hidden input meanwhile, or an integer is out of range.
            return self._function(*args, **kwargs)
        return result

    def _give_up_oldest(self, newest: Any) -> None:
        """Keep what is remembered within bounds, but always ``newest``."""
        nodes = sum([variant.nodes for found in list(self._variants.values()) for variant in found])
        for key in list(self._variants):
            if key == newest or (len(self._variants) <= _MAX_KEYS and nodes <= _MAX_NODES):
                return
            nodes -= sum([variant.nodes for variant in self._variants.pop(key, ())])

    def _is_static(self, argument: int | str) -> bool:
        """Whether the argument at a position or of a name is static."""
        return argument in self._static_positions or argument in self._static_names


def _static_positions(function: Callable[..., Any], names: tuple[str, ...]) -> dict[int, str]:
    """Where the static arguments stand when they are given by position."""
    if not names:
        return {}
    parameters = inspect.signature(function).parameters
    by_keyword = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in names:
        if name not in parameters and not by_keyword:
            raise TraceError(
                f"jit: static_argnames has {name!r}, which is no parameter of "
                f"{getattr(function, '__qualname__', function)}({', '.join(parameters)})"
            )
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {
        position: parameter.name
        for position, parameter in enumerate(parameters.values())
        if parameter.name in names and parameter.kind in positional
    }


def _static_key(value: Any, what: str, jitted: Jitted) -> Any:
    try:
        hash(value)
    except TypeError:
        raise TraceError(
            f"{jitted!r}: {what} is a {type(value).__name__}, which is neither an array, a number, a container of "
            "these, nor hashable, so calls with it cannot be told apart; pass it in another form or let the function "
            "close over it"
        ) from None
    kind: Any = type(value)
    if kind.__hash__ is object.__hash__ and kind.__weakrefoffset__:
        return kind, ref(value)  # equal to itself only, so that nothing is lost by letting it die
    return kind, value


def _leaf_key(leaf: Any, jitted: Jitted) -> Any:
    """What a leaf contributes to the key of a call."""
    kind = leaf_kind(leaf)
    if kind == "tensor":
        node = leaf.node  # raises if it belongs to a finished trace
        return node.shape, node.dtype, node.weak, node.rg
    if kind == "array":
        return leaf.shape, leaf.dtype
    if kind == "number":
        if type(leaf) is int and leaf not in INT64:
            raise RangeError(f"{jitted!r}: Python integer {leaf} out of bounds for int64")
        return type(leaf)
    if type(leaf) is complex:
        raise DTypeError(f"{jitted!r}: complex arguments are not supported yet; pass real and imaginary parts")
    return _static_key(leaf, "an argument", jitted)


def _aliases(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Which tensor leaves are one and the same."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(leaf), i) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)])


def _has_no_value(leaf: Any) -> bool:
    """Whether ``leaf`` stands for any value in a running transform, so that the function has to be called in line."""
    return isinstance(leaf, Tensor) and leaf._node.buffer is None and depends_on_placeholder(leaf._node)


@overload
def jit(function: F, *, static_argnames: str | Iterable[str] = ()) -> F: ...


@overload
def jit(function: None = None, *, static_argnames: str | Iterable[str] = ()) -> Callable[[F], F]: ...


def jit(function: Any = None, *, static_argnames: str | Iterable[str] = ()) -> Any:
    """``function`` compiled: Python runs once for each set of argument types, then only native code.

    Use it as ``jit(f)``, ``@jit`` or ``@jit(static_argnames="n")``.

    Arguments and results are pytrees. Tensors and NumPy arrays are told apart by shape, dtype and weak type; Python
    ints and floats are run-time arguments (0-d weak tensors inside); bools, strings, None, enums, other hashable
    objects and the arguments named in ``static_argnames`` are part of what is compiled.

    Tensors that the function reads from outside are read again at each call; tensors that it rebinds (``x += v``,
    ``x[i] = v``, ``x.assign(v)``, an optimizer's step, a generator's state, a ``.grad``; also a variable or attribute
    that holds a tensor and is given another of its shape and dtype) are rebound after each call.
    The Python values that it sees are watched, and the function is recorded again when one has changed: attributes of
    modules, what it and the functions that it names close over, globals, attributes of plain objects, the elements of
    small lists and dicts among these. Not watched are the contents of NumPy arrays and of large containers, and what
    the function itself changes: Python effects happen only when it is recorded.

    Raises TraceError where the function needs the value of a traced tensor, naming the line; errors of the
    function itself pass through and leave everything as it was.
    """
    if function is None:
        return functools.partial(jit, static_argnames=static_argnames)
    if not callable(function):
        raise TraceError(f"jit: a function expected, got {type(function).__name__}")
    return Jitted(function, static_argnames)
