"""What LatentWire declares: its configuration, toggles, claims and checks. A plan reads it without torch."""

from __future__ import annotations

from perfsweep.workloads.api import Check, Comparator, Declaration
from perfsweep.workloads.latentwire.claims import CLAIMS
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.presets import KINDS
from perfsweep.workloads.latentwire.variants import TOGGLES
from perfsweep.workloads.latentwire.variants.gradients import effective_batch
from perfsweep.workloads.training.toggles import DATA

CHECKS = (
    Check("terms", Comparator.RELATIVE),  # each loss term and the total, of a fixed probe batch
    Check("grad_norm", Comparator.RELATIVE),
    Check("gradient", Comparator.RELATIVE),
    Check("gradient_direction", Comparator.COSINE),
    # Once a runner-up is within rounding, another choice is legitimate, and so is all that follows it.
    Check("greedy_ids", Comparator.IDENTICAL, excused="greedy_close"),
    # AdamW turns rounding of zero gradients into steps, so losses are compared after some, not weights.
    Check("losses", Comparator.RELATIVE, bound=1e-3),
)


class LatentWire(Declaration):
    """Trains an encoder whose few latent vectors replace a text in the prompts of frozen language models.

    For those who compress prompts, for one model or several at once: accuracy against the text itself and
    against what is as short is scored. It gains by keeping what the teacher says, by passing prefixes shared
    and unpadded, and by narrower numbers where results stay in their bounds.

    Encoder, adapters and additions to the models are trained; the language models themselves stay frozen.
    """

    Config = LatentWireConfig
    toggles = TOGGLES
    on_request = (*Declaration.on_request, DATA)
    claims = CLAIMS
    checks = CHECKS
    shape = "steps"
    unit = "example"
    paths = ("resume",)
    data_phases = ("data_wait",)

    @classmethod
    def configured(cls, config: LatentWireConfig) -> type[Declaration]:
        """The workload, with the preset's batch as the baseline of `effective_batch`."""
        own = effective_batch(config.sizes.batch)
        toggles = tuple(own if toggle.name == own.name else toggle for toggle in cls.toggles)
        return type(cls.__name__, (cls,), {"__module__": cls.__module__, "toggles": toggles})

    @classmethod
    def planned(cls, config: LatentWireConfig) -> LatentWireConfig:
        """The configuration with files and folders from the root, for trials that start elsewhere.

        Raises
        ------
        ConfigError
            One of them cannot be used.
        """
        if config.data not in KINDS or config.lm_path is not None or config.resume is not None:
            from perfsweep.workloads.latentwire.given_files import check_files  # which needs torch

            check_files(config)
        return config.absolute()
