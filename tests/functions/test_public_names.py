"""Every public function has a docstring and a row from which its tests are made; every planned name exists; every
method of a tensor is the function of its name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.methods import Methods
from tests.functions.rows import ROWS

# -- names that are no functions of arrays -----------------------------------------------------------------------------

# What makes arrays from something else, or says what an array is; tests/api/test_creation.py and test_dtypes.py.
CREATION = """
arange array asarray empty empty_like eye from_dlpack fromfunction full full_like identity linspace ones ones_like
tensor zeros zeros_like
"""
TYPES = """
Tensor DType astype bool bool_ broadcast_shapes can_cast finfo get_default_dtype iinfo isdtype result_type
set_default_dtype
"""
# Functions of functions, and modes: tests/transforms/, tests/test_debug_nans.py.
TRANSFORMS = """
checkpoint checkpoint_name cond custom_jvp custom_vjp debug_nans eval explain grad gradients graph_of Graph hessian hvp
jacfwd jacrev jit jvp linearize no_grad profile stop_gradient value_and_grad vjp vmap
get_backend set_backend get_matmul_precision set_matmul_precision get_num_threads set_num_threads
"""
# What gives Python values: tests/api/.
VALUES = "allclose array_equal einsum_path"
NOT_OF_ARRAYS = frozenset(f"{CREATION} {TYPES} {TRANSFORMS} {VALUES}".split())

# Another name of the same function needs no rows of its own; see test_aliases.
ALIASES = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "clamp": "clip", "concatenate": "concat", "degrees": "rad2deg",
    "invert": "bitwise_invert", "mod": "remainder", "power": "pow", "radians": "deg2rad",
    "transpose": "permute_dims", "true_divide": "divide", "nn.sigmoid": "sigmoid", "nn.tanh": "tanh",
}  # fmt: skip

# -- names that must exist ---------------------------------------------------------------------------------------------

PLANNED = {
    "elementwise": """
        negative abs sign square sqrt rsqrt cbrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
        atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma floor ceil round trunc frac sigmoid logit
        sinc deg2rad rad2deg isnan isinf isfinite signbit add subtract multiply divide floor_divide remainder fmod pow
        atan2 hypot logaddexp logaddexp2 maximum minimum fmax fmin copysign nextafter xlogy equal not_equal less
        less_equal greater greater_equal logical_and logical_or logical_xor logical_not bitwise_and bitwise_or
        bitwise_xor bitwise_invert left_shift right_shift where clip lerp masked_fill bitcast
    """,
    "reductions": """
        sum mean prod max min any all argmax argmin var std logsumexp count_nonzero linalg.norm median quantile nansum
        nanmean nanmax nanmin
    """,
    "cumulative": """
        cumulative_sum cumulative_prod cummax cummin logcumsumexp diff gated_scan
    """,
    "movement": """
        reshape permute_dims moveaxis swapaxes matrix_transpose expand_dims squeeze flatten broadcast_to flip roll pad
        concat stack split chunk unstack tile repeat tril triu diagonal diag unfold narrow rot90 meshgrid
    """,
    "indexing": """
        take take_along_axis put_along_axis gather scatter index_add index_select select nn.one_hot searchsorted
        segment_sum segment_max segment_mean bincount nonzero
    """,
    "sorting": "sort argsort topk unique_all unique_counts unique_inverse unique_values",
    "contraction": "matmul einsum tensordot vecdot outer kron linear",
    "linear algebra": """
        linalg.cholesky linalg.qr linalg.lu linalg.solve linalg.solve_triangular linalg.inv linalg.det linalg.slogdet
        linalg.eigh linalg.eigvalsh linalg.svd linalg.svdvals linalg.pinv linalg.lstsq linalg.matrix_power linalg.expm
        linalg.matrix_rank linalg.cond linalg.vector_norm linalg.matrix_norm linalg.cross linalg.trace
    """,
    "nn": """
        nn.relu nn.relu6 nn.leaky_relu nn.prelu nn.elu nn.celu nn.selu nn.gelu nn.silu nn.mish nn.hardswish
        nn.hardsigmoid nn.hardtanh nn.softplus nn.softsign nn.log_sigmoid nn.tanhshrink nn.glu nn.swiglu nn.softmax
        nn.log_softmax nn.layer_norm nn.rms_norm nn.group_norm nn.batch_norm nn.instance_norm nn.embedding nn.dropout
        nn.mse_loss nn.l1_loss nn.smooth_l1_loss nn.huber_loss nn.binary_cross_entropy
        nn.binary_cross_entropy_with_logits nn.nll_loss nn.cross_entropy nn.kl_div nn.cosine_similarity
        nn.triplet_margin_loss nn.ctc_loss nn.masked_cross_entropy nn.conv1d nn.conv2d nn.conv3d nn.conv_transpose1d
        nn.conv_transpose2d nn.conv_transpose3d nn.unfold nn.fold nn.max_pool1d nn.max_pool2d nn.max_pool3d
        nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.adaptive_avg_pool2d nn.adaptive_max_pool2d nn.interpolate
        nn.scaled_dot_product_attention nn.rope nn.alibi
    """,
    "transforms": """
        linearize jacfwd jacrev hessian hvp checkpoint custom_vjp custom_jvp vmap jit grad stop_gradient gradients
        testing.check_grads debug_nans
    """,
}


def _find(name: str) -> Any:
    found: Any = pb
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _modules() -> Iterator[tuple[str, ModuleType]]:
    yield "", pb
    yield "nn.", nn
    if hasattr(pb, "linalg"):
        yield "linalg.", pb.linalg


def _functions() -> dict[str, Any]:
    """Every public function of arrays by name."""
    found = {}
    for prefix, module in _modules():
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if not callable(value) or inspect.isclass(value) or inspect.ismodule(value):
                continue
            if name[0].islower() and (prefix or name not in NOT_OF_ARRAYS):
                found[f"{prefix}{name}"] = value
    return found


def test_every_function_has_a_row() -> None:
    functions = _functions()
    with_rows = {row.name for row in ROWS}
    missing = sorted(name for name in functions if name not in with_rows and name not in ALIASES)
    assert not missing, f"no row in tests/functions/rows for {' '.join(missing)}"


def test_every_row_is_of_a_public_function() -> None:
    names = {row.name for row in ROWS}
    unknown = sorted(name for name in names - set(_functions()) if not (name.startswith("Tensor.") and _find(name)))
    assert not unknown, f"rows of what is not public: {' '.join(unknown)}"


def test_aliases() -> None:
    """An alias is the same function, or one that gives the same."""
    for alias, name in ALIASES.items():
        one, other = _find(alias), _find(name)
        if one is None:
            continue
        assert other is not None, name
        if one is not other and (one.__module__, one.__qualname__) != (other.__module__, other.__qualname__):
            rows = [row for row in ROWS if row.name == name]
            assert rows, f"{alias} is not {name} itself, and {name} has no row"
            arrays = [pb.asarray(a) if isinstance(a, np.ndarray) else a for a in rows[0].arrays]
            np.testing.assert_array_equal(np.asarray(one(*arrays)), np.asarray(other(*arrays)), err_msg=alias)


def test_names_that_are_no_functions_of_arrays_exist() -> None:
    """The list of exceptions is no place to forget things in."""
    gone = sorted(name for name in NOT_OF_ARRAYS if _find(name) is None)
    assert not gone, f"listed, and not there: {' '.join(gone)}"
    doubled = sorted(NOT_OF_ARRAYS & {row.name for row in ROWS})
    assert not doubled, f"listed as no functions of arrays, and have rows: {' '.join(doubled)}"


def test_every_function_has_a_docstring() -> None:
    bare = sorted(name for name, function in _functions().items() if not (function.__doc__ or "").strip())
    bare += [name for name in sorted(NOT_OF_ARRAYS) if _find(name) is not None and not _find(name).__doc__]
    assert not bare, f"no docstring: {' '.join(bare)}"


@pytest.mark.parametrize("family", PLANNED)
def test_every_planned_name_exists(family: str) -> None:
    missing = [name for name in PLANNED[family].split() if not callable(_find(name))]
    assert not missing, f"{family}: {' '.join(missing)}"


def test_options_that_were_planned() -> None:
    """Arguments that the plan names."""
    wanted = {
        "cumulative_sum": ("exclusive", "reverse"), "pad": ("mode",), "sort": ("stable", "descending", "axis"),
        "argsort": ("stable", "descending", "axis"), "nn.gelu": ("approximate",),
        "nn.cross_entropy": ("weight", "label_smoothing", "ignore_index"),
        "nn.masked_cross_entropy": ("logits", "labels", "weights"), "gated_scan": ("a", "b", "axis"),
        "vmap": ("in_axes", "out_axes"), "nn.conv2d": ("stride", "padding", "dilation", "groups", "layout"),
        "nn.conv_transpose2d": ("output_padding",),
    }  # fmt: skip
    missing = [
        f"{name}({argument}=)" for name, arguments in wanted.items() for argument in arguments
        if _find(name) is None or argument not in inspect.signature(_find(name)).parameters
    ]
    assert not missing


# -- methods -----------------------------------------------------------------------------------------------------------

X = np.array([[0.3, -1.2, 2.5, 0.7], [1.1, 0.4, -0.6, 2.2], [-0.8, 1.9, 0.2, -1.5]])

# The arguments of the methods that need some; the others are called without. Those that reduce are also called with
# axis and keepdims.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "astype": (pb.float32,), "reshape": ((4, 3),), "repeat": (2, 1), "take": (np.array([1, 0]), 1), "clip": (-1.0, 1.0),
    "swapaxes": (0, 1), "dot": (X.T,), "split": (2, 1), "expand_dims": (0,), "broadcast_to": ((2, 3, 4),),
    "moveaxis": (0, 1), "flip": (1,), "roll": (1,), "chunk": (2, 1), "narrow": (1, 1, 2), "tile": ((2, 1),),
    "unfold": (1, 2, 1), "quantile": (0.3,), "matmul": (X.T,), "vdot": (X,), "permute": ((1, 0),), "view": ((4, 3),),
}  # fmt: skip
REDUCING = (
    "sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin", "count_nonzero", "logsumexp",
    "nansum", "nanmean", "median", "quantile",
)  # fmt: skip
# Methods named otherwise than their functions.
NAMES = {
    "T": "permute_dims", "mT": "matrix_transpose", "transpose": "permute_dims", "permute": "permute_dims",
    "view": "reshape",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(name for name in vars(Methods) if not name.startswith("_")))
def test_a_method_is_the_function_of_its_name(name: str) -> None:
    x = pb.asarray(X)
    function = _find(NAMES.get(name, name))
    assert function is not None, f"x.{name} mirrors no public function"
    method = vars(Methods)[name]
    assert method.__doc__, f"x.{name} has no docstring"
    if isinstance(method, property):
        _same(getattr(x, name), function(x, *((None,) if name == "T" else ())))
        return
    if name in ("any", "all", "nonzero"):
        x = x > 0
    arguments = ARGUMENTS.get(name, ())
    _same(getattr(x, name)(*arguments), function(x, *((None,) if name == "transpose" else arguments)))
    if name in REDUCING:
        options = {"axis": 1, "keepdims": True}
        _same(getattr(x, name)(*arguments, **options), function(x, *arguments, **options))


def _same(got: Any, expected: Any) -> None:
    for a, b in zip(pb.pytree.leaves(got), pb.pytree.leaves(expected), strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
