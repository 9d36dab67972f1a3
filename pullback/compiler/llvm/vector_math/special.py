"""The error function."""

from __future__ import annotations

from ..builder import VectorBuilder
from ..values import Value
from .double_word import divide_pairs, quick_two_sum, two_product
from .exp_log import EXP, EXP_SHORT, expm1_reduced, reduce_exp
from .scaling import FORMATS, power_of_two, times_power_of_two

#: erf(x)/x - 1 as a polynomial of x**2, |x| <= 1 (f32: <= _ERF_SPLIT)
_ERF_SMALL = {
    "f32": (1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2, 4.99119423e-3, -5.96761703e-4),
    "f64": (
        0.1283791670955126, -0.376126389031841, 0.11283791670971278, -0.026866170648080185, 0.005223977653308709,
        -0.000854832857874101, 0.00012055388018795843, -1.4926931214058603e-05, 1.6481946227293698e-06,
        -1.6567433035140722e-07, 1.608824167635938e-08, -1.6775619407339502e-09, 1.4903007426459492e-10,
    ),
}  # fmt: skip
#: log(1 - erf(x)) / x + 1 on [_ERF_SPLIT, 4] (N. Juffa, public domain)
_ERF_LARGE_F32 = (
    -1.28717512e-1, -6.34846687e-1, -1.06777877e-1, 2.42546219e-2, -3.88396438e-3, 3.83197126e-4, -1.72853470e-5,
)  # fmt: skip
_ERF_SPLIT = 0.927734375
#: from here on erf rounds to 1
_ERF_ONE = 6.0
#: exp(x**2) * erfc(x) * (1+2x) as a polynomial of t = (x-K)/(x+K), x >= 0.49
_ERFC_CENTRE = {"f32": 2.0, "f64": 4.0}
_ERFC_F32 = (
    1.2769783812241882, -0.09276381502255951, -0.16603034952198958, 0.1640506974124215, -0.05422109083355225,
    -0.008025663776158905, 0.008731021403110413, 0.0012214053796707738, -0.0014819345545961022,
    -0.00031843882942701604, 0.00023005005545025835,
)
_ERFC_F64_FIRST = (1.2329951186255526, -4.625318921008717e-17)
_ERFC_F64 = (
    -0.13962111684056283, 0.015379652102620066, 0.06809705425473034, -0.1010390660363233, 0.09373283499701206,
    -0.0663303658118412, 0.03716751555973918, -0.01619773406083232, 0.005031969773064402, -0.0007577732850948084,
    -0.00019925556334771758, 0.00015062178202327145, -2.4403086736176526e-05, -1.1222828380128148e-05,
    5.7178992505615375e-06, 2.9651257739159766e-07, -8.353804681982364e-07, 6.970251347461721e-08,
    1.1563270926828742e-07, -1.321918003059076e-08, -1.3792680266494525e-08,
)
#: beyond, erfc is 0
_ERFC_LAST = {"f32": 10.3, "f64": 27.3}
_ERFC_SPLIT = 0.5


def erf(b: VectorBuilder, x: Value) -> Value:
    """A polynomial near 0; else 1 - erfc."""
    size = b.abs(x)
    small = b.fma(b.polynomial(b.mul(x, x), _ERF_SMALL[x.dtype]), x, x)
    if x.dtype == "f32":
        large, split = _erf_large_f32(b, size), _ERF_SPLIT
    else:
        high, n = _erfc_large(b, b.fmin(b.const(_ERF_ONE, "f64"), size))
        scaled = b.mul(high, power_of_two(b, b.add(n, b.const(FORMATS["f64"].magic + 1023, "f64"))))
        large, split = b.sub(b.const(1, "f64"), scaled), 1.0
    return b.select(b.cmp("lt", size, b.const(split, x.dtype)), small, b.copysign(large, x))


def _erf_large_f32(b: VectorBuilder, size: Value) -> Value:
    """1 - exp(-x * (1 + p(x)))."""
    x = b.fmin(b.const(4.0, "f32"), size)
    r = b.fma(b.polynomial(x, _ERF_LARGE_F32), x, b.neg(x))
    reduced = reduce_exp(b, r)
    e = expm1_reduced(b, reduced, EXP_SHORT)
    form = FORMATS["f32"]
    s = power_of_two(b, b.add(reduced.n, b.const(form.magic + form.bias, "f32")))
    return b.sub(b.const(1, "f32"), b.fma(e, s, s))


def erfc(b: VectorBuilder, x: Value) -> Value:
    """1 - erf(x) below 1/2; above, exp(-x**2) times a polynomial; 2 - erfc(-x) for negative x."""
    dtype = x.dtype
    size = b.abs(x)
    one = b.const(1, dtype)
    small = b.sub(one, b.fma(b.polynomial(b.mul(x, x), _ERF_SMALL[dtype]), x, x))
    if dtype == "f32":
        high, n = _erfc_large_f32(b, size)
        tail = b.cast(b.mul(high, power_of_two(b, b.add(n, b.const(FORMATS["f64"].magic + 1023, "f64")))), "f32")
    else:
        tail = times_power_of_two(b, *_erfc_large(b, size))
    tail = b.select(b.cmp("lt", x, b.const(0, dtype)), b.sub(b.const(2, dtype), tail), tail)
    return b.select(b.cmp("lt", size, b.const(_ERFC_SPLIT, dtype)), small, tail)


def _erfc_large(b: VectorBuilder, size: Value) -> tuple[Value, Value]:
    """(h, n): erfc = h * 2**n, for x >= 0.49."""
    x = b.fmin(b.const(_ERFC_LAST["f64"], "f64"), size)
    centre = b.const(_ERFC_CENTRE["f64"], "f64")
    t = b.fdiv(b.sub(x, centre), b.add(x, centre))
    first = _ERFC_F64_FIRST
    rest = b.fma(t, b.polynomial(t, _ERFC_F64), b.const(first[1], "f64"))
    numerator = quick_two_sum(b, b.const(first[0], "f64"), rest)
    denominator = quick_two_sum(b, b.add(x, x), b.const(1, "f64"))
    ratio = divide_pairs(b, numerator, denominator)
    square = two_product(b, x, x)
    reduced = reduce_exp(b, b.neg(square.high), b.neg(square.low))
    return b.add(ratio.high, b.fma(ratio.high, expm1_reduced(b, reduced), ratio.low)), reduced.n


def _erfc_large_f32(b: VectorBuilder, size: Value) -> tuple[Value, Value]:
    """The same in f64 arithmetic with enough terms for f32."""
    x = b.cast(b.fmin(b.const(_ERFC_LAST["f32"], "f32"), size), "f64")
    centre = b.const(_ERFC_CENTRE["f32"], "f64")
    t = b.fdiv(b.sub(x, centre), b.add(x, centre))
    one = b.const(1, "f64")
    ratio = b.fdiv(b.polynomial(t, _ERFC_F32), b.add(b.add(x, x), one))
    reduced = reduce_exp(b, b.neg(b.mul(x, x)))
    return b.fma(ratio, expm1_reduced(b, reduced, {"f64": EXP["f32"]}), ratio), reduced.n
