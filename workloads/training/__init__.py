"""A training of your own with the shared toggles: say what is trained, and the loop does the rest."""

from workloads.training.loop import Parts, Training
from workloads.training.toggles import shared_toggles

__all__ = ["Parts", "Training", "shared_toggles"]
