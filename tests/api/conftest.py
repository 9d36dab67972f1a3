"""The tests of the array functions run on the compiled backend, or on the one that PULLBACK_TEST_BACKEND names."""

import os

import pytest

import pullback as pb


@pytest.fixture(autouse=True, scope="session")
def chosen_backend():
    before = pb.get_backend()
    pb.set_backend(os.environ.get("PULLBACK_TEST_BACKEND", before))
    yield
    pb.set_backend(before)
