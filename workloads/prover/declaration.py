"""What Prover declares: its configuration, toggles, claims and checks, which are read without torch."""

from __future__ import annotations

from perfsweep.workloads.api import Check, Comparator, Declaration
from perfsweep.workloads.prover.claims import CLAIMS
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.variants import TOGGLES

CHECKS = (
    Check("success", Comparator.IDENTICAL, excused="ambiguous"),
    Check("depth", Comparator.IDENTICAL, excused="ambiguous"),
    Check("actions", Comparator.IDENTICAL, excused="ambiguous"),
    Check("log_prob", Comparator.ABSOLUTE, 1e-4, excused="ambiguous"),  # divided by 1 + depth
    Check("rank", Comparator.IDENTICAL, excused="ambiguous_query"),
    # What a timed trial says of its ranks. Means have no place for an excuse: one query in doubt of a handful
    # moves them by this much, and ranks are compared one by one above.
    Check("mrr", Comparator.ABSOLUTE, 0.1),
    Check("hits*", Comparator.ABSOLUTE, 0.2),
    Check("ambiguous_share", Comparator.AT_MOST, 0.01, against="oracle"),
    Check(
        "screening_error", Comparator.AT_MOST, 0.5, against="oracle"
    ),  # in units of delta; 0 without screening
)


class Prover(Declaration):
    """Proves queries over a knowledge graph by resolution with a learned policy, and ranks them.

    For those who evaluate neural provers: every test query is ranked among corrupted copies of itself, as MRR
    and Hits@k ask. It gains by dropping what is finished, looking facts up instead of comparing all, valuing
    states once and scoring in bfloat16 where float32 confirms the choice.

    A job scores every candidate of the chosen queries; an iteration is one step of one slab of candidates.

    Set-up reads the data, makes the policy and warms up. Drawing corruptions belongs to the job.
    """

    Config = ProverConfig
    toggles = TOGGLES
    claims = CLAIMS
    checks = CHECKS
    shape = "job"
    unit = "candidate"
    paths = ("weights",)

    @classmethod
    def planned(cls, config: ProverConfig) -> ProverConfig:
        """The configuration as it is; data and a policy that could not be used are refused."""
        from perfsweep.workloads.prover.job import refuse_unusable  # which needs torch

        refuse_unusable(config)
        return config
