"""The benchmark: Pullback beside NumPy, PyTorch and JAX on the same inputs. Run ``python -m bench --help``.

This module imports nothing, so that a process which times an import starts from bare Python.
"""
