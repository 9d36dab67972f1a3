"""The error function, its complement and its inverse."""

from __future__ import annotations

import math

from ..builder import VectorBuilder
from ..values import Value
from .double_word import divide_pairs, quick_two_sum, two_product
from .exp_log import EXP, EXP_SHORT, expm1_reduced, log, reduce_exp
from .hyperbolic import in_double
from .rare import rare_vectors
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

#: erfinv(x) / x as a polynomial of x**2, |x| <= 1/2; and what rounding the first coefficient lost
_ERFINV_SMALL = (
    0.886226925452758, 0.23201366653465413, 0.1275561753057025, 0.08655212922928228, 0.06495961849686033,
    0.05173125434128652, 0.042837381929296245, 0.03645513184554066, 0.03181283844468519, 0.026969129751201436,
    0.030910158235606017, -0.0014607021070302691, 0.08722866446698135, -0.09642274527103643, 0.12003690619362008,
)  # fmt: skip
_ERFINV_SMALL_LOW = -3.813781578912822e-17
#: erfinv(x) / x as a polynomial of w - 3.25, w = -log(1-x**2) <= 6.25 (the variable is M. Giles's, "Approximating the
#: erfinv function", 2010)
_ERFINV_MIDDLE = (
    1.6835786578550347, 0.2386164859521738, -0.006294203865044187, -0.00064955434541045, 0.00017776603602029028,
    -1.4770969391233102e-05, -1.0082651557607657e-06, 3.923367754985925e-07, -3.2976903359554194e-08,
    -2.8502834208532647e-09, 9.648358864725692e-10, -7.047528730498329e-11, -8.850590457124817e-12,
    2.4307379743522827e-12, -1.4395137782661365e-13, -2.7251315635911694e-14, 6.226053187269607e-15,
    -2.7049763452825343e-16, -9.033896805885782e-17, 1.5831108344213285e-17, 2.233703009846994e-19,
    -2.750539130666223e-19, 8.502591561625698e-21, 1.987570556283985e-21,
)  # fmt: skip
_ERFINV_MIDDLE_LOW = 9.11924799213284e-17
_ERFINV_CENTRE, _ERFINV_SPLIT = 3.25, 6.25
#: erfinv(x) / x as polynomials of sqrt(w) - centre, on 2.5 <= sqrt(w) <= 3.75 and up to 6.02, the root of the last w
_ERFINV_TAIL = (
    (
        2.958320150240462, 1.0037186917979248, 0.007047884417792239, -0.0053010106084717965, 0.003794420015889912,
        -0.002519882692129381, 0.0012606698704164749, -0.0003286621669571277, -8.955315396622111e-05,
        0.00013610483572052583, -5.885324623323042e-05, 2.1847191588744335e-06, 1.140347851237335e-05,
        -6.273338500735276e-06, 8.961585074337242e-07, 7.539735815770302e-07, -5.51087501873621e-07,
        1.2588128233450996e-07, 5.4101294188863754e-08, -3.724261759054731e-08,
    ),
    (
        4.733720354118342, 1.0103233588959284, -5.819205748745534e-05, -0.00025273488413030516, 8.826600263564883e-05,
        -2.310169787238621e-05, 5.42011507026139e-06, -1.2422399612490943e-06, 3.208545622738206e-07,
        -1.1512456042524143e-07, 5.6887505236643433e-08, -3.0483633033877614e-08, 1.496523726938649e-08,
        -6.222343879604116e-09, 2.0600190858358723e-09, -4.5984999384200737e-10, -1.0240073808973563e-11,
        7.286788554202441e-11, -3.3315344345965856e-11, 5.574236664451635e-12,
    ),
)  # fmt: skip
_ERFINV_TAIL_LOW = (1.1708762672003873e-16, 4.3096114924383013e-16)
_ERFINV_TAIL_CENTRE = (3.125, 4.885)
_ERFINV_TAIL_SPLIT = 3.75


def erf(b: VectorBuilder, x: Value) -> Value:
    """A polynomial near 0; else 1 - erfc."""
    size = b.abs(x)
    if x.dtype == "f32":
        small, tail, is_small = erf_tail(b, x, size)
        large = b.sub(b.const(1, "f32"), tail)
    else:
        small = b.fma(b.polynomial(b.mul(x, x), _ERF_SMALL["f64"]), x, x)
        high, n = _erfc_large(b, b.fmin(b.const(_ERF_ONE, "f64"), size))
        scaled = b.mul(high, power_of_two(b, b.add(n, b.const(FORMATS["f64"].magic + 1023, "f64"))))
        large, is_small = b.sub(b.const(1, "f64"), scaled), b.cmp("lt", size, b.const(1, "f64"))
    return b.select(is_small, small, b.copysign(large, x))


def erf_tail(b: VectorBuilder, x: Value, size: Value) -> tuple[Value, Value, Value]:
    """Of f32: erf(x) for small |x|, erfc(|x|) = exp(-|x| (1 + p(|x|))) for others up to 4, and which it is."""
    small = b.fma(b.polynomial(b.mul(x, x), _ERF_SMALL["f32"]), x, x)
    near = b.fmin(b.const(4.0, "f32"), size)
    r = b.fma(b.polynomial(near, _ERF_LARGE_F32), near, b.neg(near))
    reduced = reduce_exp(b, r)
    e = expm1_reduced(b, reduced, EXP_SHORT)
    form = FORMATS["f32"]
    s = power_of_two(b, b.add(reduced.n, b.const(form.magic + form.bias, "f32")))
    return small, b.fma(e, s, s), b.cmp("lt", size, b.const(_ERF_SPLIT, "f32"))


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


@in_double
def erfinv(b: VectorBuilder, x: Value) -> Value:
    """x times a polynomial of x**2 up to 1/2, then of -log(1-x**2), and near 1 of that logarithm's root."""
    one = b.const(1, "f64")
    size = b.abs(x)
    square = b.mul(x, x)
    first, low = b.const(_ERFINV_SMALL[0], "f64"), b.const(_ERFINV_SMALL_LOW, "f64")
    rest = b.fma(square, b.polynomial(square, _ERFINV_SMALL[1:]), low)
    small = b.fma(size, first, b.mul(size, rest))

    w = b.neg(log(b, b.mul(b.sub(one, size), b.add(one, size))))
    u = b.sub(w, b.const(_ERFINV_CENTRE, "f64"))
    rest = b.fma(u, b.polynomial(u, _ERFINV_MIDDLE[1:]), b.const(_ERFINV_MIDDLE_LOW, "f64"))
    factor = quick_two_sum(b, b.const(_ERFINV_MIDDLE[0], "f64"), rest)
    quick = b.fma(size, factor.high, b.mul(size, factor.low))
    quick = b.select(b.cmp("lt", size, b.const(0.5, "f64")), small, quick)
    needed = b.cmp("gt", w, b.const(_ERFINV_SPLIT, "f64"))
    result = rare_vectors(b, "erfinv", _erfinv_tail, (size, w), quick, needed)
    return b.copysign(b.select(b.cmp("eq", size, one), b.const(math.inf, "f64"), result), x)


def _erfinv_tail(b: VectorBuilder, size: Value, w: Value) -> Value:
    """Of sizes so near 1 that w > 6.25."""
    t = b.sqrt(w)
    far = b.cmp("gt", t, b.const(_ERFINV_TAIL_SPLIT, "f64"))

    def either(near_and_far: tuple[float, float]) -> Value:
        return b.select(far, b.const(near_and_far[1], "f64"), b.const(near_and_far[0], "f64"))

    u = b.sub(t, either(_ERFINV_TAIL_CENTRE))
    coefficients = list(zip(*_ERFINV_TAIL, strict=True))
    rest = either(coefficients[-1])
    for pair in reversed(coefficients[1:-1]):
        rest = b.fma(rest, u, either(pair))
    rest = b.fma(rest, u, either(_ERFINV_TAIL_LOW))
    factor = quick_two_sum(b, either(coefficients[0]), rest)
    # size is 1 less a little, which is exact.
    return b.add(factor.high, b.fnma(b.sub(b.const(1, "f64"), size), factor.high, factor.low))
