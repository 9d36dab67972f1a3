"""No elementary function is off by more than its bound, with or without fused multiply-add.

Samples of what ``python -m bench.accuracy --full`` measures; docs/accuracy.md holds those results.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from harness import TARGETS

from bench.accuracy import Effort, accuracies, compiled, document, main
from bench.arguments import float32_arguments, float64_arguments, near_multiples_of_half_pi
from bench.elementary import BY_NAME, ELEMENTARY
from bench.ulp import errors, exact_results, measure
from pullback.compiler.llvm.target import ENVIRONMENT_VARIABLE, host

pytestmark = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double")
SAMPLE = Effort(float32=1 << 19, exact=120, long=1 << 15, pairs=1 << 15)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(BY_NAME))
def test_error_is_within_the_bound(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, target)
    assert host().name == target
    function = BY_NAME[name]
    for found in accuracies(function, SAMPLE):
        assert found.max_ulp <= function.bound, f"{found.dtype}: {found.max_ulp:.3f} ulp at {found.where}"
        assert found.points > 100


def test_every_bound_is_that_of_the_library() -> None:
    assert all(function.bound <= 2 for function in ELEMENTARY)


def test_targets_are_compiled_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the second target would not have been measured."""
    x = np.linspace(0.5, 2, 5000).astype(np.float32)
    results = []
    for target in TARGETS:
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, target)
        results.append(compiled(BY_NAME["log"])(x))
    assert len(TARGETS) == 1 or any(np.any(results[0] != other) for other in results[1:])


def test_unit_in_the_last_place() -> None:
    x = np.array([1.0, 1.0, 1e-45, 3.4028235e38, np.inf, np.inf, np.nan, 0.0, 2.0], np.float32)
    below_top = 2.0**128 - 2.0**104
    wanted = np.array([1.0 + 2.0**-24, 1.0 - 2.0**-24, 0.7e-45, 2.0**128, 1e39, below_top, np.nan, np.nan, 2.0])
    error = errors(x, wanted)
    tiny = abs(float(np.float32(1e-45)) - 0.7e-45) / 2.0**-149
    np.testing.assert_allclose(error, [0.5, 1.0, tiny, 1.0, 0.0, 1.0, 0.0, np.inf, 0.0])
    np.testing.assert_allclose(errors(x.astype(np.float64)[:2], wanted[:2].astype(np.longdouble)), [2.0**28, 2.0**29])
    np.testing.assert_allclose(errors(np.array([0.25]), np.array([0.25 + 2.0**-52], np.longdouble), floor=1.0), [1.0])


def test_a_wrong_digit_is_found() -> None:
    """Three units added to one result in a thousand, and a NaN."""
    sine = BY_NAME["sin"]
    good = compiled(sine)

    def wrong(x: np.ndarray) -> np.ndarray:
        y = np.array(good(x))
        y[::1000] += 3 * np.spacing(y[::1000])
        return y

    found = measure(sine, np.float32, wrong, float32_arguments(sine, 1 << 16))
    assert 2 < found.max_ulp < 5

    def undefined(x: np.ndarray) -> np.ndarray:
        return np.where(x == x[7], np.nan, good(x))

    assert measure(sine, np.float64, undefined, [float64_arguments(sine, 100)], exact=True).max_ulp == np.inf


def test_exact_results_keep_more_than_a_double() -> None:
    got = exact_results(BY_NAME["exp"], (np.array([1.0, 1000.0, -1e5]),))
    with mpmath.workdps(40):
        rest = mpmath.e - mpmath.mpf(float(got[0])) - mpmath.mpf(float(got[0] - np.longdouble(float(got[0]))))
    assert abs(float(rest)) < 2e-19
    assert np.isfinite(got[1]) and got[1] > 1e308 and got[2] < 1e-300


def test_doubles_near_multiples_of_half_pi() -> None:
    """The one nearest of all, 6381956970095103 * 2**797, is among them."""
    x = near_multiples_of_half_pi()
    assert np.any(x == 6381956970095103.0 * 2.0**797)
    assert x.max() > 1e307 and x.size > 1000


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    rows = accuracies(BY_NAME["sqrt"], SAMPLE)
    text = document(rows, rows, full=False, seconds=60)
    assert "| sqrt | float32 |" in text and "0.500" in text and "quick sample" in text
    assert main(["--functions", "sqrt", "--brief"]) == 0
    assert "sqrt" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--functions", "squirt"])
    assert "no function 'squirt'" in capsys.readouterr().err
