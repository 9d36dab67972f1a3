"""Checking derivatives against finite differences, and values against expected ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .api.evaluation import eval as evaluate
from .errors import ArgumentError, GradientError
from .graph.state import describe_site
from .interop import numpy_to_node
from .ops.leaf import data
from .tensor import Tensor
from .transforms import functional, pytree

Array = np.ndarray[Any, Any]

_MODES = ("fwd", "rev")
_MAX_ENTRIES = 64  # up to so many entries are tried one by one; among more the wrong one is found by halving


# -- derivatives -------------------------------------------------------------------------------------------------------


def check_grads(
    function: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = _MODES,
    atol: float = 1e-5,
    rtol: float = 1e-5,
    eps: float = 1e-4,
    seed: int = 0,
    mode_rtol: float = 1e-10,
) -> None:
    """Check the derivatives of ``function`` at ``args`` against central differences, in float64.

    Differences are taken in a random direction; forward mode's tangent is compared with them entry by entry, reverse
    mode's gradient as its product with the direction, for a random cotangent. Both modes are also compared with each
    other, which needs no differences and is much sharper: ``<gradient, direction>`` is ``<cotangent, tangent>``.

    Args:
        function: of pytrees, to a pytree of which at least one leaf is floating; smooth within ``eps`` of ``args``, and
            the same at each call.
        args: a tuple, one entry for each argument. Floating leaves are cast to float64 and differentiated by; all
            others (integers, bools, strings) are passed as they are.
        order: 2 also checks the derivatives of the derivatives, in each pair of modes, and so on.
        modes: ``"fwd"`` for jvp, ``"rev"`` for vjp, or both.
        atol, rtol: between a derivative and the differences.
        eps: step of the differences, which are exact up to ``eps**4`` (two step sizes, extrapolated: Richardson).
        seed: of the random directions and cotangents.
        mode_rtol: between the modes, relative to the sum of the absolute values of the products' terms, or to 1.

    Raises GradientError that names the modes, the entry of the output, the entry of the argument and both numbers where
    they disagree; and where values are NaN, or infinite and not constant, or nothing is floating. Raises ArgumentError
    for bad options.
    """
    modes = _checked(function, args, order, modes, atol, rtol, eps, mode_rtol)
    options = _Options(modes, atol, rtol, eps, mode_rtol, np.random.default_rng(seed))
    _check(_subject(function, tuple(args)), order, options)


@dataclass(frozen=True)
class _Options:
    modes: tuple[str, ...]
    atol: float
    rtol: float
    eps: float
    mode_rtol: float
    rng: np.random.Generator

    def close(self, found: Array, expected: Array) -> Array:
        """Where they agree."""
        with np.errstate(invalid="ignore"):
            return np.abs(found - expected) <= self.atol + self.rtol * np.abs(expected)


@dataclass(frozen=True)
class _Subject:
    """A function of float64 tensors to floating tensors, and its point.

    inputs, outputs: how a message names them.   history: the derivatives that made the function: ``"rev then "``.
    """

    function: Callable[..., tuple[Tensor, ...]]
    primals: tuple[Tensor, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    history: str = ""


def _checked(
    function: Any, args: Any, order: Any, modes: Any, atol: float, rtol: float, eps: float, mode_rtol: float
) -> tuple[str, ...]:
    """The modes, if all options are allowed."""
    if not callable(function):
        raise ArgumentError(f"check_grads: a function expected, got {type(function).__name__}")
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"check_grads: args must be a tuple, one entry for each argument, got {type(args).__name__}; "
            "for a single argument write (x,)"
        )
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise ArgumentError(f"check_grads: order must be an int of at least 1, got {order!r}")
    names = (modes,) if isinstance(modes, str) else tuple(modes)
    if not names or any(name not in _MODES for name in names):
        raise ArgumentError(f"check_grads: modes must be 'fwd', 'rev' or both, got {modes!r}")
    for name, value in (("eps", eps), ("atol", atol), ("rtol", rtol), ("mode_rtol", mode_rtol)):
        if not value >= 0 or (name == "eps" and value == 0):
            raise ArgumentError(f"check_grads: {name} must be positive, got {value!r}")
    return tuple(dict.fromkeys(names))


def _subject(function: Callable[..., Any], args: tuple[Any, ...]) -> _Subject:
    """``function`` as one of its floating leaves alone."""
    leaves, structure = pytree.flatten(args)
    paths = [path for path, _ in pytree.leaves_with_paths(args)]
    positions = [i for i, leaf in enumerate(leaves) if _is_floating(leaf)]
    if not positions:
        raise GradientError(
            "check_grads: args hold no floating array or number to differentiate by; integers, bools and strings are "
            "passed to the function as they are"
        )
    primals = tuple([_tensor(np.array(leaves[i], dtype=np.float64)) for i in positions])

    def call(*given: Tensor) -> Any:
        full = list(leaves)
        for position, tensor in zip(positions, given):
            full[position] = tensor
        return function(*pytree.unflatten(structure, full))

    def flat(*given: Tensor) -> tuple[Tensor, ...]:
        return tuple([leaf for leaf in pytree.leaves(call(*given)) if _is_floating_tensor(leaf)])

    outputs = [path for path, leaf in pytree.leaves_with_paths(call(*primals)) if _is_floating_tensor(leaf)]
    if not outputs:
        raise GradientError(
            "check_grads: the function returned no floating tensor; float(x), np.asarray(x) and the math module leave "
            "the graph, and integers and bools have no derivative"
        )
    names = tuple([f"args{paths[i]}" for i in positions])
    return _Subject(flat, primals, names, tuple([f"output{path}" for path in outputs]))


def _is_floating(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, float)
    # The kind of bfloat16 is "V" in NumPy.
    return dtype.kind == "f" or getattr(dtype, "name", "") == "bfloat16"


def _is_floating_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype.kind == "f"


def _check(subject: _Subject, order: int, options: _Options) -> None:
    values = subject.function(*subject.primals)
    _require_finite(subject, "is", [np.where(np.isinf(x), 0, x) for x in _arrays(values)])
    rng = options.rng
    tangents = [rng.standard_normal(x.shape) for x in subject.primals]
    cotangents = [rng.standard_normal(x.shape) for x in values]
    numeric = _difference(subject, tangents, options.eps)
    _require_finite(subject, f"has, within eps={options.eps} of args, a difference quotient that is", numeric)
    forward: list[Array] = []
    products: list[Array] = []
    if "fwd" in options.modes:
        forward = _jvp(subject, tangents)
        if not all(np.all(options.close(a, b)) for a, b in zip(forward, numeric)):
            raise _Search(subject, "fwd", tangents, cotangents, options).error(forward, numeric)
    if "rev" in options.modes:
        reverse = _vjp(subject, cotangents)
        products = [g * t for g, t in zip(reverse, tangents)]
        expected = _total(c * d for c, d in zip(cotangents, numeric))
        if not np.all(options.close(np.asarray(_total(products)), np.asarray(expected))):
            raise _Search(subject, "rev", tangents, cotangents, options).error(
                [np.asarray(_total(products))], [np.asarray(expected)]
            )
    if forward and products:
        terms = [c * d for c, d in zip(cotangents, forward)]
        _compare_modes(subject, products, terms, [x.dtype.itemsize for x in values], options)
    if order > 1:
        for mode in options.modes:
            _check(_derivative(subject, mode, tangents, cotangents), order - 1, options)


def _derivative(
    subject: _Subject, mode: str, tangents: Sequence[Array], cotangents: Sequence[Array]
) -> _Subject:
    """The derivative of a subject, as a function of the same inputs."""
    if mode == "fwd":
        direction = tuple(map(_tensor, tangents))

        def tangent(*primals: Tensor) -> tuple[Tensor, ...]:
            return tuple(functional.jvp(subject.function, primals, direction)[1])

        function, outputs = tangent, tuple([f"tangent({name})" for name in subject.outputs])
    else:
        def gradient(*primals: Tensor) -> tuple[Tensor, ...]:
            values, pullback = functional.vjp(subject.function, *primals)
            return tuple(pullback(_like(values, cotangents)))

        function, outputs = gradient, tuple([f"gradient({name})" for name in subject.inputs])
    return _Subject(function, subject.primals, subject.inputs, outputs, f"{subject.history}{mode} then ")


def _jvp(subject: _Subject, tangents: Sequence[Array]) -> list[Array]:
    return _arrays(functional.jvp(subject.function, subject.primals, tuple(map(_tensor, tangents)))[1])


def _vjp(subject: _Subject, cotangents: Sequence[Array]) -> list[Array]:
    values, pullback = functional.vjp(subject.function, *subject.primals)
    return _arrays(pullback(_like(values, cotangents)))


def _like(values: Sequence[Tensor], cotangents: Sequence[Array]) -> tuple[Tensor, ...]:
    """The cotangents in the dtypes of the values."""
    return tuple([_tensor(c).astype(value.dtype) for value, c in zip(values, cotangents)])


def _difference(subject: _Subject, tangents: Sequence[Array], eps: float) -> list[Array]:
    """The derivative along ``tangents`` by central differences at two steps, extrapolated.

    What is one and the same infinity at all steps is constant.
    """
    points = [np.asarray(x) for x in subject.primals]

    def at(step: float) -> list[Array]:
        return _arrays(subject.function(*[_tensor(x + step * t) for x, t in zip(points, tangents)]))

    with np.errstate(invalid="ignore", over="ignore"):
        wide = [_change(a, b) / (2 * eps) for a, b in zip(at(eps), at(-eps))]
        fine = [_change(a, b) / eps for a, b in zip(at(eps / 2), at(-eps / 2))]
        return [(4 * f - w) / 3 for f, w in zip(fine, wide)]


def _change(after: Array, before: Array) -> Array:
    return np.where(np.isinf(after) & (after == before), 0, after - before)


def _compare_modes(
    subject: _Subject, by_reverse: Sequence[Array], by_forward: Sequence[Array], sizes: Sequence[int], options: _Options
) -> None:
    """``<gradient, direction>`` against ``<cotangent, tangent>``, which are the same number but for rounding."""
    if min(sizes) < 8:
        return  # an output that is not float64 is rounded
    reverse, forward = _total(by_reverse), _total(by_forward)
    scale = sum(float(np.sum(np.abs(a))) for a in (*by_reverse, *by_forward))
    allowed = options.mode_rtol * max(scale, 1.0)
    if not abs(reverse - forward) <= allowed:
        raise GradientError(
            f"check_grads: {subject.history}fwd and rev disagree: <gradient, direction> is {reverse!r}, <cotangent, "
            f"tangent> is {forward!r} (difference {abs(reverse - forward):.3g}, allowed {allowed:.3g}); "
            f"{_made_at(subject, 0)}"
        )


def _require_finite(subject: _Subject, what: str, arrays: Sequence[Array]) -> None:
    for position, array in enumerate(arrays):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            index = tuple(bad[0])
            raise GradientError(
                f"check_grads: {subject.history}{subject.outputs[position]}{_index(index)} {what} {array[index]} "
                f"({len(bad)} of {array.size} entries), so differences say nothing; "
                f"{_made_at(subject, position)}"
            )


# -- the entry that disagrees ------------------------------------------------------------------------------------------


class _Search:
    """From a direction in which a derivative is wrong to an entry of the output and an entry of an argument."""

    def __init__(
        self, subject: _Subject, mode: str, tangents: list[Array], cotangents: list[Array], options: _Options
    ) -> None:
        self.subject = subject
        self.mode = mode
        self.tangents = tangents
        self.cotangents = cotangents
        self.options = options

    def error(self, found: Sequence[Array], expected: Sequence[Array]) -> GradientError:
        """found, expected: what was compared in the random direction."""
        source = self._input_entry(found, expected)
        unit = _unit(self.tangents, source)
        column = _difference(self.subject, unit, self.options.eps)
        if self.mode == "fwd":
            derived = _jvp(self.subject, unit)
            target = _worst(derived, column)
            value = derived[target[0]].flat[target[1]]
        else:
            def disagreement(cotangents: list[Array]) -> float:
                gradient = _vjp(self.subject, cotangents)[source[0]].flat[source[1]]
                return float(gradient - _total(c * d for c, d in zip(cotangents, column)))

            target = _search(disagreement, self.cotangents)
            value = _vjp(self.subject, _unit(self.cotangents, target))[source[0]].flat[source[1]]
        truth = column[target[0]].flat[target[1]]
        name = f"check_grads: {self.subject.history}{self.mode}"
        where = f"{self.subject.outputs[target[0]]}{_entry(column[target[0]], target[1])}"
        by = f"{self.subject.inputs[source[0]]}{_entry(self.tangents[source[0]], source[1])}"
        if self.options.close(np.asarray(value), np.asarray(truth)):
            position, at = _worst(found, expected)
            return GradientError(
                f"{name}: along a random direction the derivative is {found[position].flat[at]:.10g}, differences "
                f"give {expected[position].flat[at]:.10g}; no single entry is off by more than the tolerance, the "
                f"worst is d {where} / d {by}: {value:.10g} and {truth:.10g}; {_made_at(self.subject, target[0])}"
            )
        return GradientError(
            f"{name}: d {where} / d {by} is {value:.10g}, differences give {truth:.10g} (difference "
            f"{abs(value - truth):.3g}); {_made_at(self.subject, target[0])}"
        )

    def _input_entry(self, found: Sequence[Array], expected: Sequence[Array]) -> tuple[int, int]:
        """Argument and flat position of the entry by which the derivative is most wrong."""
        subject, eps = self.subject, self.options.eps
        if self.mode == "fwd":
            position, at = _worst(found, expected)

            def disagreement(tangents: list[Array]) -> float:
                numeric = _difference(subject, tangents, eps)
                return float(_jvp(subject, tangents)[position].flat[at] - numeric[position].flat[at])
        else:
            gradient = _vjp(subject, self.cotangents)

            def disagreement(tangents: list[Array]) -> float:
                numeric = _difference(subject, tangents, eps)
                return _total(g * t for g, t in zip(gradient, tangents)) - _total(
                    c * d for c, d in zip(self.cotangents, numeric)
                )

        return _search(disagreement, self.tangents)


def _search(disagreement: Callable[[list[Array]], float], direction: Sequence[Array]) -> tuple[int, int]:
    """Array and flat position of the entry of ``direction`` with the largest disagreement: one by one among a few,
    else by keeping the half that disagrees more."""
    entries = [(i, j) for i, array in enumerate(direction) for j in range(array.size)]

    def amount(part: list[tuple[int, int]], one: bool) -> float:
        masked = [np.zeros_like(array) for array in direction]
        for i, j in part:
            masked[i].flat[j] = 1 if one else direction[i].flat[j]
        value = abs(disagreement(masked))
        return np.inf if np.isnan(value) else value

    while len(entries) > _MAX_ENTRIES:
        middle = len(entries) // 2
        left, right = entries[:middle], entries[middle:]
        entries = left if amount(left, False) >= amount(right, False) else right
    return max(entries, key=lambda entry: amount([entry], True))


def _worst(found: Sequence[Array], expected: Sequence[Array]) -> tuple[int, int]:
    """Array and flat position of the largest difference; NaN is the largest of all."""
    best, largest = (0, 0), -1.0
    for i, (a, b) in enumerate(zip(found, expected)):
        if a.size:
            with np.errstate(invalid="ignore"):
                difference = np.abs(a - b).ravel()
            difference[np.isnan(difference)] = np.inf
            j = int(np.argmax(difference))
            if difference[j] > largest:
                best, largest = (i, j), float(difference[j])
    return best


def _unit(like: Sequence[Array], entry: tuple[int, int]) -> list[Array]:
    unit = [np.zeros_like(array) for array in like]
    unit[entry[0]].flat[entry[1]] = 1
    return unit


def _entry(array: Array, position: int) -> str:
    return _index(np.unravel_index(position, array.shape))


def _index(index: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, map(int, index)))}]" if len(index) else ""


def _made_at(subject: _Subject, position: int) -> str:
    node = subject.function(*subject.primals)[position].node
    return f"the output was made at {describe_site(node.site)}"


# -- arrays ------------------------------------------------------------------------------------------------------------


def _tensor(array: Array) -> Tensor:
    return Tensor(data(np.asarray(array), False))


def _arrays(tensors: Iterable[Tensor]) -> list[Array]:
    """The values in float64, all computed in one program."""
    found = list(tensors)
    evaluate(*found)
    return [np.asarray(x).astype(np.float64) for x in found]


def _total(arrays: Iterable[Array]) -> float:
    return sum([float(np.sum(array)) for array in arrays])


# -- values ------------------------------------------------------------------------------------------------------------


def assert_close(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False
) -> None:
    """Check that two pytrees hold the same values, up to ``|actual - expected| <= atol + rtol * |expected|``.

    Args:
        actual, expected: pytrees of the same structure of tensors, NumPy arrays and numbers, of equal shapes and, but
            for Python numbers, equal dtypes.
        rtol, atol: by default those of the dtype (of the less precise side): for float64 1e-7, float32 1e-5, float16
            1e-3, bfloat16 2e-2; 0 for integers and bools.
        equal_nan: a NaN equals a NaN.

    Raises AssertionError that names the leaf and the entry that differ most, with both values.
    """
    left, right = pytree.leaves_with_paths(actual), pytree.leaves_with_paths(expected)
    if pytree.structure(actual) != pytree.structure(expected):
        raise AssertionError(
            f"assert_close: the structures differ: {pytree.describe(pytree.structure(actual))} and "
            f"{pytree.describe(pytree.structure(expected))}"
        )
    for (path, a), (_, b) in zip(left, right):
        _assert_leaf_close(path, a, b, rtol, atol, equal_nan)


_TOLERANCE = {"float64": 1e-7, "float32": 1e-5, "float16": 1e-3, "bfloat16": 2e-2}


def _assert_leaf_close(
    path: str, actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool
) -> None:
    where = f"actual{path}"
    a, b = _plain(actual), _plain(expected)
    if a.shape != b.shape:
        raise AssertionError(f"assert_close: {where} has shape {a.shape}, expected {b.shape}")
    is_number = isinstance(actual, bool | int | float) or isinstance(expected, bool | int | float)
    if a.dtype != b.dtype and not is_number:
        raise AssertionError(f"assert_close: {where} has dtype {a.dtype}, expected {b.dtype}")
    default = max(_TOLERANCE.get(a.dtype.name, 0.0), _TOLERANCE.get(b.dtype.name, 0.0))
    relative, absolute = default if rtol is None else rtol, default if atol is None else atol
    is_floating = default > 0
    x, y = (a.astype(np.float64), b.astype(np.float64)) if is_floating else (a.astype(object), b.astype(object))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(x - y) if is_floating else np.abs(x * 1 - y * 1).astype(np.float64)
        bound = absolute + relative * np.abs(y)
        close = (x == y) | ((difference <= bound) & (bound < np.inf))
    if equal_nan and is_floating:
        close |= np.isnan(x) & np.isnan(y)
    close = np.asarray(close, bool)
    if close.all():
        return
    difference = np.where(close, -1.0, np.where(np.isnan(difference), np.inf, difference))
    worst = np.unravel_index(int(np.argmax(difference)), close.shape)
    raise AssertionError(
        f"assert_close: {where}{_index(worst)} is {a[worst]}, expected {b[worst]} ({int((~close).sum())} of "
        f"{close.size} entries differ by more than atol={absolute:g}, rtol={relative:g})"
    )


def _plain(leaf: Any) -> Array:
    if isinstance(leaf, Tensor):
        return np.asarray(leaf)
    return np.asarray(Tensor(numpy_to_node(np.asarray(leaf), None, None, "assert_close")))
