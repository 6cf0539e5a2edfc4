"""What SPD declares: its configuration, toggles, claims and checks. A plan reads it without torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfsweep.workloads.api import Check, Comparator, Declaration
from perfsweep.workloads.spd.claims import CLAIMS
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES
from perfsweep.workloads.training.toggles import DATA

CHECKS = (
    Check("losses", Comparator.RELATIVE),
    Check("gradients", Comparator.RELATIVE),
    # The same matrix twice, one row for each module's importance gradient, rows of unit length: the cosine of
    # the whole is the mean over modules.
    Check("importance_mean", Comparator.COSINE),
    Check("importance_worst", Comparator.WORST_COSINE),
    Check("divergence", Comparator.ABSOLUTE),  # nats per position
    Check("exact_faithfulness", Comparator.AT_MOST, 1e-12, against="oracle"),
)


class Spd(Declaration):
    """Decomposes weights of a frozen network into rank-one parts, and learns which of them an input needs.

    For those who take networks apart by stochastic parameter decomposition: parts, importances and losses are
    what a training run is after. It gains by what is computed once instead of for every term, by compiling
    masked passes and by evaluating and saving no more often than asked.
    """

    Config = SpdConfig
    toggles = TOGGLES
    on_request = (*Declaration.on_request, DATA)
    claims = CLAIMS
    checks = CHECKS
    shape = "steps"
    unit = "position"
    paths = ("target_path", "tokens_path", "vectors_path", "values_path", "resume")

    @classmethod
    def configured(cls, config: SpdConfig) -> type[Declaration]:
        """The workload; of a network of the user's own, its file belongs to what decides on results."""
        file = _file_of(config)
        return (
            cls
            if file is None
            else type(cls.__name__, (cls,), {"__module__": cls.__module__, "files": (file,)})
        )

    @classmethod
    def planned(cls, config: SpdConfig) -> SpdConfig:
        """The configuration with the user's network by its file, wherever the trial runs.

        Raises
        ------
        ConfigError
            A file that it names cannot be used.
        """
        if any(getattr(config, name) is not None for name in ("target", *cls.paths)):
            from perfsweep.workloads.spd.named_files import check_files  # which needs torch

            check_files(config)
        file = _file_of(config)
        if file is None or config.target is None or not config.target.rpartition(":")[0].endswith(".py"):
            return config
        factory = config.target.rpartition(":")[2]
        return replace(config, target=f"{file.resolve()}:{factory}")


def _file_of(config: SpdConfig) -> Path | None:
    """The file of the user's network; None where there is none, or it cannot be told."""
    if config.target is None:
        return None
    from perfsweep.workloads.spd.maths.user_models import source_of

    return source_of(config.target)
