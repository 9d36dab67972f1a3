"""Feeding arrays to training loops."""

from .batches import Batches as Batches
from .batches import batches as batches
