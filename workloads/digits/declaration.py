"""What digits declares. Apart from the code that trains, a plan reads it without torch."""

from __future__ import annotations

from perfsweep.workloads.api import Declaration
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.digits.toggles import CHECKS, CLAIMS, RANKS, TOGGLES
from perfsweep.workloads.training.toggles import DATA


class Digits(Declaration):
    """Trains a small classifier on scikit-learn's digits."""

    Config = DigitsConfig
    toggles = TOGGLES
    on_request = (*Declaration.on_request, DATA, *RANKS)
    claims = CLAIMS
    checks = CHECKS
