"""Mathematical functions on vectors, as polynomials after range reduction.

Each function takes a builder and f32 or f64 values and returns a value of the same dtype. Errors are at most 2 ulp (most
functions: 1), subnormal arguments and results are kept, and special values follow C99 Annex F. The tables of polynomial
coefficients are minimax fits (Remez exchange) of the function named beside them, rounded coefficient by coefficient,
unless another source is named.
"""

from .exp_log import exp, log
from .hyperbolic import sigmoid, tanh
from .remainder import floor_divide, remainder

#: the functions of one argument, by the name of their operation
UNARY = ("exp", "log", "sigmoid", "tanh")

__all__ = [*UNARY, "floor_divide", "remainder", "UNARY"]
