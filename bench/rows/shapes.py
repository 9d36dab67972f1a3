"""A jitted function called with lengths that it has not seen: how much of the compiler runs again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ..row import PRODUCT, MismatchError, Options, Outcome, Target, fastest_peer
from ..timing import time_once

FIRST_LENGTH = 200
LENGTHS = 100  # new ones for the product
PEER_LENGTHS = 5  # a peer that compiles for each of them needs no more


def lengths(count: int) -> list[int]:
    """Different lengths, odd and even, that no power of two divides alike."""
    return [FIRST_LENGTH + 37 * number for number in range(1, count + 1)]


def make_array(length: int) -> np.ndarray:
    """f32[length, 64]."""
    return np.random.default_rng(length).standard_normal((length, 64), dtype=np.float32)


def _weight() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)


# A function of each library: for a kind, a callable of a NumPy array of the new length that waits for its result.


def build_pullback(gradient: bool, weight: np.ndarray) -> Callable[[np.ndarray], Any]:
    import pullback as pb

    def model(w: Any, x: Any) -> Any:
        e = pb.exp(x - pb.max(x, axis=-1, keepdims=True))
        return pb.tanh(e / pb.sum(e, axis=-1, keepdims=True) @ w)

    function = pb.jit(pb.grad(lambda w, x: pb.mean(model(w, x) ** 2)) if gradient else model)
    w = pb.asarray(weight)

    def call(x: np.ndarray) -> Any:
        y = function(w, x)
        pb.eval(y)
        return y

    return call


def build_jax(gradient: bool, weight: np.ndarray) -> Callable[[np.ndarray], Any]:
    import jax
    import jax.numpy as jnp

    def model(w: Any, x: Any) -> Any:
        return jnp.tanh(jax.nn.softmax(x, axis=-1) @ w)

    function = jax.jit(jax.grad(lambda w, x: jnp.mean(model(w, x) ** 2)) if gradient else model)
    w = jnp.asarray(weight)
    return lambda x: function(w, x).block_until_ready()


@dataclass(frozen=True)
class NewLength:
    """tanh(softmax(x) @ w) of a new number of rows, or the gradient of its mean square with respect to w."""

    gradient: bool

    @property
    def name(self) -> str:
        return "new-length-grad" if self.gradient else "new-length"

    @property
    def what(self) -> str:
        return f"a jitted {'gradient' if self.gradient else 'function'} called with {LENGTHS} lengths not seen before"

    def computed(self, tiny: bool) -> list[np.ndarray]:
        ours = build_pullback(self.gradient, _weight())
        return [np.array(ours(make_array(length))) for length in lengths(2 if tiny else LENGTHS)]

    def run(self, options: Options) -> Iterator[Outcome]:
        # What the libraries imported so far left behind is not walked by Python's garbage collector during a call: with
        # PyTorch and JAX loaded that takes 200 ms, whoever is being timed.
        gc.collect()
        gc.freeze()
        try:
            yield self._measure(options)
        finally:
            gc.unfreeze()

    def _measure(self, options: Options) -> Outcome:
        from pullback.runtime.llvm_engine import compile_count

        weight = _weight()
        ours = build_pullback(self.gradient, weight)
        first = make_array(FIRST_LENGTH)
        ours(first)
        compiled = compile_count()
        new = [make_array(length) for length in lengths(5 if options.tiny else LENGTHS)]
        times = [time_once(lambda x=x: ours(x)) for x in new]  # type: ignore[misc]
        compilations = compile_count() - compiled
        seconds = {PRODUCT: median(times)}
        if "jax" in options.peers:
            theirs = build_jax(self.gradient, weight)
            theirs(first)
            known = new[:PEER_LENGTHS]
            seconds["jax"] = median([time_once(lambda x=x: theirs(x)) for x in known])  # type: ignore[misc]
            for x in known:
                mine, other = np.asarray(ours(x)), np.asarray(theirs(x))
                if not np.max(np.abs(mine - other)) <= 1e-4 * np.max(np.abs(other)):
                    raise MismatchError(f"{self.name}: length {len(x)} differs from jax's")
        notes = [f"slowest {max(times) * 1e3:.2f} ms of {len(times)} new lengths; {compilations} LLVM compilations"]
        best = fastest_peer(seconds)
        ratio = seconds[PRODUCT] / seconds[best] if best else None
        facts = {"slowest": max(times), "lengths": len(times), "llvm_compilations": compilations}
        if compilations:
            raise MismatchError(f"{self.name}: a new length must not reach LLVM: {compilations} compilations")
        return Outcome(self.name, self.what, Target(8e-3, 8e-3, absolute=True), seconds, best, ratio, notes, facts)


ROWS = (NewLength(gradient=False), NewLength(gradient=True))
