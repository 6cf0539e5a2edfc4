"""What Probe1D declares: its configuration, toggles, claims and checks. A plan reads it without torch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perfsweep.workloads.api import Check, Comparator, Declaration
from perfsweep.workloads.probe1d.claims import CLAIMS
from perfsweep.workloads.probe1d.config import Probe1DConfig, sources
from perfsweep.workloads.probe1d.variants import TOGGLES

# Gradients and Hessians at one fixed point, computed by each arm's own pass: all arms must agree to float32
# rounding of reordered sums, whatever solver uses them. The oracle figures are recorded for every arm; the
# report-time solver is known to fail them on well-posed pairs, and arms that share its passes inherit that.
PROBE_BOUND = 1e-5
MAX_GRADIENT = 1.01e-6
MAX_EXCESS = 1e-5
MEAN_EXCESS = 5e-7
CHECKS = (
    Check("probe_gradient", Comparator.RELATIVE, PROBE_BOUND),
    Check("probe_hessian", Comparator.RELATIVE, PROBE_BOUND),
    Check("loss_mean", Comparator.ABSOLUTE, MAX_EXCESS),  # of timed jobs too
    Check("max_gradient", Comparator.AT_MOST, MAX_GRADIENT, against="oracle"),
    Check("max_excess", Comparator.AT_MOST, MAX_EXCESS, against="oracle"),
    Check("mean_excess", Comparator.AT_MOST, MEAN_EXCESS, against="oracle"),
    Check("confusion_mismatches", Comparator.AT_MOST, 0.0, against="oracle"),
)


class Probe1D(Declaration):
    """Fits a logistic regression with two parameters for every pair of a sparse latent and a class.

    For those who probe sparse autoencoders: its coefficients and losses say which latent tells which class
    apart. It gains by doing per latent what a loop does per pair, by solving instead of descending, and by
    certifying each pair, so that nothing runs for a fixed number of steps.

    A job solves the grid of pairs; an iteration is the preparation, a slab pass or a slab's metrics.

    Set-up loads the data onto the device, rows first, as an autoencoder writes them. Sorting by latent and
    all sums that are made once belong to the job (phase ``prepare``) unless ``sort_in_job`` is off.
    """

    Config = Probe1DConfig
    toggles = TOGGLES
    claims = CLAIMS
    checks = CHECKS
    shape = "job"
    unit = "pair"
    extra_phases = ("loss", "confusion")

    @classmethod
    def planned(cls, config: Probe1DConfig) -> Probe1DConfig:
        """The configuration with the path of a data file made absolute: jobs may run in another folder.

        Raises
        ------
        ConfigError
            The data are no preset and no file, or cannot be solved.
        """
        if config.data in sources():
            return config
        from perfsweep.workloads.probe1d.data.sources import load_data, place  # which need torch

        data = load_data(config.data, config.data_seed, "cpu", Path(), config.classes)
        place(data, "cpu", config.storage_dtype)
        return dataclasses.replace(config, data=str(Path(config.data).absolute()))
