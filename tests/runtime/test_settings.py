"""Settings that are context managers: nested, overlapping between threads, reused, made and never entered."""

import random

import pytest

import pullback as pb
from pullback.runtime import evaluate

SETTINGS = {
    "precision": (pb.set_matmul_precision, ("highest", "bf16"), pb.get_matmul_precision),
    "debug_nans": (pb.debug_nans, (False, True), lambda: evaluate.looks_for() is not None),
}


@pytest.fixture(params=sorted(SETTINGS))
def setting(request):
    make, values, current = SETTINGS[request.param]
    yield make, values, current
    make(values[0])


def test_contexts_that_overlap_leave_nothing_behind(setting):
    make, (low, high), current = setting
    first, second = make(high), make(high)  # as two threads would: both made before either is entered
    with first:
        second.__enter__()
    assert current() == high
    second.__exit__(None, None, None)
    assert current() == low


def test_contexts_that_end_in_any_order(setting):
    make, values, current = setting
    for seed in range(200):
        rng = random.Random(seed)
        base = rng.choice(values)
        make(base)
        opened = []
        for value in rng.choices(values, k=5):
            context = make(value)
            context.__enter__()
            opened.append((value, context))
            assert current() == value
            if rng.random() < 0.5:
                opened.pop(rng.randrange(len(opened)))[1].__exit__(None, None, None)
                assert current() == (opened[-1][0] if opened else base)
        for _, context in rng.sample(opened, len(opened)):
            context.__exit__(None, None, None)
        assert current() == base


def test_nested_reused_and_set_inside(setting):
    make, (low, high), current = setting
    with make(high):
        make(low)
        assert current() == low
        with make(high):
            assert current() == high
        assert current() == low
    assert current() == low
    context = make(high)
    make(low)
    for _ in range(2):
        with context, context:
            assert current() == high
        assert current() == low


def test_what_is_set_again_and_again_is_forgotten(setting):
    make, (low, high), _ = setting
    for _ in range(200):
        make(high)
        make(low)
        with make(high):
            pass
    assert len(make._in_force) <= 70
