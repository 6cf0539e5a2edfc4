"""Whether an arm that draws at random is equivalent to the reference: paired seeds, two one-sided tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfsweep.pipelines.parity.bounds import SEED_MARGIN, is_own
from perfsweep.pipelines.parity.comparison import judge
from perfsweep.pipelines.parity.entries import entry_of
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.equivalence import Equivalence, tost
from perfsweep.workloads.api import Check, Evidence, Parity


def judge_seeds(
    reference: Sequence[Evidence],
    arm: Sequence[Evidence],
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
) -> ParityResult:
    """Compare runs of arm and reference that pairwise share seed, start and data order.

    Exact and tolerance levels must pass with every seed. For stochastic levels, metrics are tested for
    equivalence: every check on a number or, where there is none, the checks that `bounds` names, tensors by
    their mean. The bound is the margin, relative to the reference's mean.
    """
    results = [judge(r, a, checks, parity, bounds) for r, a in zip(reference, arm, strict=True)]
    for seed, result in enumerate(results):
        if result.verdict is ParityVerdict.DIFFERENT:
            return replace(result, reason=f"pair of seeds {seed}: {result.reason}")
    if (
        not results
        or parity is not Parity.STOCHASTIC
        or all(r.verdict is ParityVerdict.IDENTICAL for r in results)
    ):
        return _least_certain(results, parity)
    runs = (*reference, *arm)
    names = [
        check.name
        for check in checks
        if not is_own(check) and all(entry_of(run, check.name) is not None for run in runs)
    ]
    metrics = [name for name in names if name in reference[0].numbers] or [
        name for name in names if name in bounds
    ]
    if not metrics:
        remedy = f"; a margin for one is stated as bounds: {{{names[0]}: 0.05}}" if names else ""
        reason = f"no check is on a number that seeds could be compared by{remedy}"
        return ParityResult(ParityVerdict.UNCHECKED, parity, reason=reason)
    margins = {name: bounds.get(name, SEED_MARGIN) for name in metrics}
    return _over_seeds({name: _paired(reference, arm, name, margins[name]) for name in metrics})


def _least_certain(results: Sequence[ParityResult], parity: Parity) -> ParityResult:
    order = (ParityVerdict.UNCHECKED, ParityVerdict.WITHIN_TOLERANCE, ParityVerdict.IDENTICAL)
    none = ParityResult(ParityVerdict.UNCHECKED, parity, reason="there are no pairs of seeds")
    return min(results, key=lambda result: order.index(result.verdict), default=none)


def _paired(reference: Sequence[Evidence], arm: Sequence[Evidence], name: str, margin: float) -> Equivalence:
    """Differences of one metric relative to the reference's mean, tested against the margin."""
    before = [float(np.mean(entry_of(evidence, name))) for evidence in reference]  # type: ignore[arg-type]
    after = [float(np.mean(entry_of(evidence, name))) for evidence in arm]  # type: ignore[arg-type]
    scale = abs(float(np.mean(before))) or 1.0
    return tost([(a - b) / scale for a, b in zip(after, before, strict=True)], margin)


def _over_seeds(tests: Mapping[str, Equivalence]) -> ParityResult:
    """All metrics must be equivalent: requiring every test to reject needs no correction for their number."""
    deviations = tuple(_seed_deviation(name, test) for name, test in tests.items())
    worst = max(deviations, key=lambda deviation: deviation.ratio)
    for equivalent, verdict in _SEED_VERDICTS.items():
        for name, test in tests.items():
            if test.equivalent is equivalent:
                return ParityResult(verdict, Parity.STOCHASTIC, worst, deviations, _seed_reason(name, test))
    return ParityResult(ParityVerdict.UNCHECKED, Parity.STOCHASTIC)


# The first that any metric has is the verdict on the arm.
_SEED_VERDICTS = {
    False: ParityVerdict.DIFFERENT,
    None: ParityVerdict.UNCHECKED,
    True: ParityVerdict.EQUIVALENT,
}


def _seed_deviation(name: str, test: Equivalence) -> Deviation:
    reach = max(abs(test.low), abs(test.high))
    return Deviation(
        name, reach, test.margin, f"mean {test.mean:+.3g} over {test.seeds} seeds", test.equivalent is True
    )


def _seed_reason(name: str, test: Equivalence) -> str:
    moved = (
        f"{name} moves by {test.mean:+.2%} [{test.low:+.2%}, {test.high:+.2%}] over {test.seeds} pairs of"
        " seeds"
    )
    allowed = f"{moved}, margin {test.margin:.2%}"
    return f"{allowed}: {test.seeds_needed} pairs would decide" if test.equivalent is None else allowed
