"""Pullback: lazy differentiable arrays, compiled to native code.

``import pullback as pb`` gives the array namespace; transforms, ``nn``, ``optim``, ``data`` and ``tools`` load when first
used.
"""

from __future__ import annotations

import math as _math
from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from . import tensor as _tensor  # the first of the modules that know each other  # isort: skip
from .api import random
from .api.contraction import dot, inner, matmul, outer, tensordot, vecdot
from .api.convert import astype, result_type
from .api.creation import (
    arange,
    array,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    fromfunction,
    full,
    full_like,
    identity,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from .api.einsum import einsum
from .api.elementwise import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    cbrt,
    ceil,
    clip,
    copysign,
    cos,
    cosh,
    deg2rad,
    degrees,
    divide,
    divmod,
    equal,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    invert,
    isclose,
    isfinite,
    isinf,
    isnan,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    nan_to_num,
    negative,
    not_equal,
    positive,
    pow,
    power,
    rad2deg,
    radians,
    reciprocal,
    remainder,
    right_shift,
    round,
    rsqrt,
    sigmoid,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from .api.evaluation import allclose, array_equal, eval
from .api.indexing import nonzero, take, take_along_axis
from .api.manipulation import (
    atleast_1d,
    atleast_2d,
    broadcast_arrays,
    broadcast_to,
    concat,
    concatenate,
    diag,
    diagonal,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    ravel,
    repeat,
    reshape,
    roll,
    split,
    squeeze,
    stack,
    swapaxes,
    tile,
    trace,
    transpose,
    tril,
    triu,
    unstack,
)
from .api.reduction import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    count_nonzero,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .api.sorting import argsort, sort
from .dtypes import (
    DType,
    bfloat16,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .dtypes import bool_ as bool
from .dtypes import can_cast as can_cast
from .errors import (
    CompileError,
    DeviceError,
    DTypeError,
    GradientError,
    PullbackError,
    ShapeError,
    TraceError,
)
from .graph.tracking import no_grad
from .shapes import broadcast_shapes
from .tensor import Tensor

bool_ = bool
e = _math.e
pi = _math.pi
inf = _math.inf
nan = _math.nan
newaxis = None

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

if TYPE_CHECKING:
    from . import data, nn, optim, testing, tools
    from .runtime.evaluate import get_backend, set_backend
    from .graph.graph import Graph, graph_of
    from .runtime.driver import get_num_threads, set_num_threads
    from .transforms import pytree
    from .transforms.batching import vmap
    from .transforms.functional import (
        grad,
        gradients,
        hessian,
        hvp,
        jacfwd,
        jacrev,
        jvp,
        linearize,
        stop_gradient,
        value_and_grad,
        vjp,
    )
    from .transforms.jit import jit

_ON_FIRST_USE = {
    "Graph": "graph.graph",
    "data": "",
    "get_backend": "runtime.evaluate",
    "get_num_threads": "runtime.driver",
    "grad": "transforms.functional",
    "gradients": "transforms.functional",
    "graph_of": "graph.graph",
    "hessian": "transforms.functional",
    "hvp": "transforms.functional",
    "jacfwd": "transforms.functional",
    "jacrev": "transforms.functional",
    "jit": "transforms.jit",
    "jvp": "transforms.functional",
    "linearize": "transforms.functional",
    "nn": "",
    "optim": "",
    "pytree": "transforms",
    "set_backend": "runtime.evaluate",
    "set_num_threads": "runtime.driver",
    "stop_gradient": "transforms.functional",
    "testing": "",
    "tools": "",
    "value_and_grad": "transforms.functional",
    "vjp": "transforms.functional",
    "vmap": "transforms.batching",
}


def __getattr__(name: str) -> Any:
    home = _ON_FIRST_USE.get(name)
    if home is None:
        raise AttributeError(f"module 'pullback' has no attribute {name!r}")
    if home in ("", "transforms"):
        value: Any = _import_module(f"{__name__}.{home + '.' if home else ''}{name}")
    else:
        value = getattr(_import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if not name.startswith("_")} | set(_ON_FIRST_USE))
