"""Matrix products: squares, thin ones, a matrix-vector product, a weight gradient, a batch; and one with its GELU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import truediv
from statistics import median
from typing import Any

import numpy as np

from ..limits import Work
from ..row import PRODUCT, Inputs, Job, MismatchError, Options, Outcome, Target, Timed
from ..timing import time_jobs

TINY = 33


@dataclass(frozen=True)
class Product:
    """``batch`` products of a [m, k] by b [k, n] of ``dtype``; of int8, summed in int32.

    transposed: a lies in memory as [k, m].   is_layer: b lies in memory as [n, k], as the weights of a linear layer.
    """

    m: int
    k: int
    n: int
    goal: float = 1.0
    dtype: str = "float32"
    batch: int = 0
    transposed: bool = False
    is_layer: bool = False

    @property
    def name(self) -> str:
        extents = f"{self.m}" if self.m == self.k == self.n else f"{self.m}x{self.k}x{self.n}"
        kind = {"float32": "", "float64": "-f64", "bfloat16": "-bf16", "int8": "-int8"}[self.dtype]
        return f"gemm-{extents}{kind}" if not self.batch else f"gemm-{self.batch}-of-{extents}{kind}"

    @property
    def what(self) -> str:
        batch = f"{self.batch} products" if self.batch else "product"
        gradient = ", the first transposed in memory: a weight gradient" if self.transposed else ""
        dtype = "int8 to int32" if self.dtype == "int8" else self.dtype
        layer = ", the second transposed in memory: a layer" if self.is_layer else ""
        return f"{dtype} {batch}, m k n = {self.m} {self.k} {self.n}{gradient}{layer}"

    def tiny(self) -> Product:
        m, k, n = (min(extent, TINY) for extent in (self.m, self.k, self.n))
        return replace(self, m=m, k=k, n=n, batch=min(self.batch, 5))

    def inputs(self, tiny: bool) -> Inputs:
        """a, b; of bfloat16 as float32, whose numbers each library rounds."""
        size = self.tiny() if tiny else self
        rng = np.random.default_rng(0)
        lead = (size.batch,) if size.batch else ()
        shapes = [
            (*lead, *shape)
            for shape in (
                (size.k, size.m) if size.transposed else (size.m, size.k),
                (size.n, size.k) if size.is_layer else (size.k, size.n),
            )
        ]
        if self.dtype == "int8":
            a, b = (rng.integers(-128, 128, shape, np.int8) for shape in shapes)
        else:
            dtype = np.float64 if self.dtype == "float64" else np.float32
            a, b = (rng.standard_normal(shape, dtype=dtype) for shape in shapes)
        return {"a": a, "b": b}

    def work(self, inputs: Inputs) -> Work:
        a, b = inputs["a"], inputs["b"]
        m = a.shape[-1] if self.transposed else a.shape[-2]
        n = b.shape[-2] if self.is_layer else b.shape[-1]
        flops = 2.0 * a.size * n
        results = (len(a) if self.batch else 1) * m * n
        each = {"float32": 4, "float64": 8, "bfloat16": 2}[self.dtype]
        computed_in = "float64" if self.dtype == "float64" else "float32"
        return Work(flops, float((a.size + b.size) * each), float(results * each), computed_in)


F64 = partial(Product, dtype="float64")
BF16 = partial(Product, dtype="bfloat16")
INT8 = partial(Product, dtype="int8")
PRODUCTS = (
    Product(64, 64, 64, 0.8), Product(128, 128, 128, 0.8), Product(256, 256, 256), Product(512, 512, 512),
    Product(1024, 1024, 1024), Product(2048, 2048, 2048), Product(32, 784, 128, 0.8), Product(128, 784, 128, 0.8),
    Product(4096, 384, 1536), Product(1, 4096, 4096, 0.8), Product(100_000, 64, 64, 0.8),
    Product(64, 100_000, 64, 0.8, transposed=True), Product(32, 32, 32, 0.8, batch=512),
    Product(32, 4096, 4096), BF16(1, 4096, 4096, 0.8, is_layer=True),
    F64(512, 512, 512), F64(1024, 1024, 1024), BF16(1024, 1024, 1024), BF16(2048, 2048, 2048),
    INT8(1024, 1024, 1024, 0.8),
)  # fmt: skip


# -- jobs --------------------------------------------------------------------------------------------------------------


def build_pullback(product: Product, inputs: Inputs) -> Job:
    import pullback as pb

    turn, turn_b = product.transposed, product.is_layer
    sums = pb.int32 if product.dtype == "int8" else None
    function = pb.jit(lambda a, b: pb.matmul(a.mT if turn else a, b.mT if turn_b else b, preferred_dtype=sums))
    a, b = (pb.astype(pb.asarray(inputs[name]), getattr(pb, product.dtype)) for name in "ab")
    pb.eval(a, b)

    def step() -> Any:
        c = function(a, b)
        pb.eval(c)
        return c

    return Job(step, lambda c: [np.asarray(pb.astype(c, pb.float64))])


def build_numpy(product: Product, inputs: Inputs) -> Job:
    a, b = inputs["a"], inputs["b"]
    if product.transposed:
        a = a.T
    if product.is_layer:
        b = b.T
    c = np.matmul(a, b)
    return Job(lambda: np.matmul(a, b, out=c), lambda c: [c])


def build_torch(product: Product, inputs: Inputs) -> Job:
    import torch

    a, b = (torch.from_numpy(inputs[name]).to(getattr(torch, product.dtype)) for name in "ab")
    if product.transposed:
        a = a.mT
    if product.is_layer:
        b = b.mT
    c = torch.matmul(a, b)
    return Job(lambda: torch.matmul(a, b, out=c), lambda c: [c.double().numpy()])


def build_jax(product: Product, inputs: Inputs) -> Job:
    import jax
    import jax.numpy as jnp

    if product.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    turn, turn_b = product.transposed, product.is_layer
    sums = jnp.int32 if product.dtype == "int8" else None
    function = jax.jit(lambda a, b: jnp.matmul(a.T if turn else a, b.T if turn_b else b, preferred_element_type=sums))
    a, b = (jnp.asarray(inputs[name], product.dtype) for name in "ab")
    return Job(lambda: function(a, b).block_until_ready(), lambda c: [np.asarray(c, np.float64)])


BUILDERS: dict[str, Callable[[Product, Inputs], Job]] = {
    "pullback": build_pullback, "numpy": build_numpy, "torch": build_torch, "jax": build_jax,
}  # fmt: skip
# NumPy has no bfloat16; a thousand cubed of bytes takes it, and PyTorch's private function, seconds.
PEERS = {"bfloat16": ("torch", "jax"), "int8": ("jax",)}
# bfloat16 keeps 8 bits of a result.
TOLERANCES = {"float32": 2e-5, "float64": 1e-13, "bfloat16": 8e-3, "int8": 0.0}


def _row(product: Product) -> Timed:
    half = product.dtype == "bfloat16"
    builders: dict[str, Callable[[Inputs], Job]] = {
        library: partial(build, product)
        for library, build in BUILDERS.items()
        if library == PRODUCT or library in PEERS.get(product.dtype, BUILDERS)
    }
    return Timed(
        product.name, product.what, Target(product.goal, 1.2 if half else 1.1), product.inputs, builders,
        TOLERANCES[product.dtype], first_call=product.name == "gemm-256", judges=("torch",) if half else (),
        work=None if product.dtype == "int8" else product.work,  # which knows no rate of integers
    )  # fmt: skip


# -- a product with what follows it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Followed:
    """Time of ``gelu(a @ b + bias)`` over the time of ``a @ b``, both of them ours."""

    product: Product

    @property
    def name(self) -> str:
        return f"gemm-bias-gelu-{self.product.m}"

    @property
    def what(self) -> str:
        return f"gelu({self.product.m}x{self.product.k}x{self.product.n} product + bias), over the product alone"

    def _jobs(self, tiny: bool) -> dict[str, Job]:
        import pullback as pb
        from pullback import nn

        inputs = self.product.inputs(tiny)
        a, b = pb.asarray(inputs["a"]), pb.asarray(inputs["b"])
        bias = pb.asarray(inputs["b"][0])
        followed = pb.jit(lambda a, b, bias: nn.gelu(a @ b + bias, approximate="tanh"))

        def step() -> Any:
            c = followed(a, b, bias)
            pb.eval(c)
            return c

        return {
            PRODUCT: Job(step, lambda c: [np.asarray(c)]), "the product alone": build_pullback(self.product, inputs),
        }  # fmt: skip

    def computed(self, tiny: bool) -> list[np.ndarray]:
        job = self._jobs(tiny)[PRODUCT]
        return job.result(job.step())

    def run(self, options: Options) -> Iterator[Outcome]:
        jobs = self._jobs(options.tiny)
        inputs = self.product.inputs(options.tiny)
        x = inputs["a"].astype(np.float64) @ inputs["b"] + inputs["b"][0]
        expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        (found,) = jobs[PRODUCT].result(jobs[PRODUCT].step())
        difference, allowed = np.max(np.abs(found - expected)), 2e-5 * np.max(np.abs(expected))
        if not difference <= allowed:
            raise MismatchError(f"{self.name}: differs from float64 by {difference:.3g}, {allowed:.3g} allowed")
        rounds = time_jobs(jobs, options)
        seconds = {name: median(times) for name, times in rounds.items()}
        alone = "the product alone"
        ratio = median(map(truediv, rounds[PRODUCT], rounds[alone]))
        limit = self.product.work(inputs).limit()
        yield Outcome(self.name, self.what, Target(1.05, 1.05), seconds, alone, ratio, limit=limit)


ROWS = tuple(_row(product) for product in PRODUCTS)
FOLLOWED = (Followed(Product(1024, 1024, 1024)), Followed(Product(4096, 384, 1536)))
