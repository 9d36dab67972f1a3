"""Cached programs outlive the graphs that they were made for, and hold nothing of them."""

from __future__ import annotations

import gc
import weakref

import numpy as np

import pullback as pb


def test_a_program_holds_neither_nodes_nor_data():
    x = pb.asarray(np.arange(4_321.0))
    y = pb.exp(x) * 3.25
    references = [weakref.ref(x.node), weakref.ref(x.node.buffer), weakref.ref(y.node.inputs[0])]
    y.numpy()
    del x, y
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_a_host_step_runs_again_after_its_first_graph_is_gone():
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal((5, 77))
        found = np.asarray(pb.argsort(pb.asarray(values) * 1.5, axis=1))
        np.testing.assert_array_equal(found, np.argsort(values, axis=1))
        gc.collect()
