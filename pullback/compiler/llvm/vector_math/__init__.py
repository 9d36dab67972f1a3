"""Mathematical functions on vectors, as polynomials after range reduction.

Each function takes a builder and f32 or f64 values and returns a value of the same dtype. Errors are at most 2 ulp
(docs/accuracy.md has those measured), subnormal arguments and results are kept, and special values follow C99 Annex F.
The tables of coefficients are minimax fits (Remez exchange) of the function named beside them, rounded coefficient by
coefficient, unless another source is named.
"""

from .activation import gelu, gelu_slope, gelu_tanh, gelu_tanh_slope
from .compound import hypot, logaddexp, logaddexp2, logit, sinc
from .exp_log import exp, exp2, expm1, log, log1p, log2, log10
from .gamma import digamma, lgamma, polygamma
from .hyperbolic import acosh, asinh, atanh, cosh, sigmoid, sinh, tanh
from .power import cbrt, pow
from .remainder import floor_divide, fmod, remainder
from .special import erf, erfc, erfinv
from .trigonometric import acos, asin, atan, atan2, cos, sin, tan

#: the functions of one argument, by the name of their operation
UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp",
    "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "logit", "sigmoid", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
#: activations and their derivatives
ACTIVATIONS = ("gelu", "gelu_slope", "gelu_tanh", "gelu_tanh_slope")

__all__ = [
    "ACTIVATIONS",
    "UNARY",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor_divide",
    "fmod",
    "gelu",
    "gelu_slope",
    "gelu_tanh",
    "gelu_tanh_slope",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logit",
    "polygamma",
    "pow",
    "remainder",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "tan",
    "tanh",
]  # fmt: skip
