"""Optimizers: PyTorch's names and formulas, in place or as pure functions."""

from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .optimizer import Optimizer as Optimizer
from .optimizer import ParamGroup as ParamGroup
from .sgd import SGD as SGD
