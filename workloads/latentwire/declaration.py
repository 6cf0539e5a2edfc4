"""What LatentWire declares: its configuration, toggles, claims and checks. A plan reads it without torch."""

from __future__ import annotations

from pathlib import Path

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
            _check_files(config)
        return config.absolute()


def _check_files(config: LatentWireConfig) -> None:
    """Refuse what a trial would refuse of files: data, models' folders and a checkpoint.

    Of weights only the headers are read, and no examples are tokenised.
    """
    from perfsweep.workloads.latentwire import checkpoint  # which needs torch, as the others do
    from perfsweep.workloads.latentwire.data.corpus import layouts_for, load_examples
    from perfsweep.workloads.latentwire.maths.frozen import check_weights, model_shapes

    if config.data not in KINDS:
        load_examples(config)
    if config.lm_path is not None:
        shapes = model_shapes(config)
        layouts_for(config, shapes, Path())
        for shape, folder in zip(shapes, config.lm_folders, strict=True):
            check_weights(shape, folder)
    if config.resume is not None:
        folder = Path(config.resume)
        about, _ = checkpoint.read(folder)
        checkpoint.refuse_other(folder, about, checkpoint.facts_of_configuration(config))
        checkpoint.read_moments(folder)
