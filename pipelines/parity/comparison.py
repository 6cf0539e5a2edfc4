"""Whether an arm computed what the reference computed.

Evidence of two arms is compared check by check. The class of a level says how far it may move results: not at
all or by rounding (exact), by the precision it chose (tolerance), or by other random draws (stochastic),
where single runs say nothing and paired seeds decide: see `seeds`. All arithmetic is done in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfsweep.pipelines.parity.bounds import is_own, loosest
from perfsweep.pipelines.parity.deviations import oracle_deviations, reference_deviations
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict, digest, digests_of
from perfsweep.workloads.api import Check, Evidence, Parity

__all__ = ["Deviation", "ParityResult", "ParityVerdict", "digest", "failed_oracles", "judge", "loosest"]


def judge(
    reference: Evidence | None,
    arm: Evidence | None,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
    units_expected: float | None = None,
    units_done: float | None = None,
) -> ParityResult:
    """Compare the evidence of one run of an arm with that of the reference.

    `parity` and `bounds` are the arm's (`loosest`). A check's bound is the first of: the arm's for its name,
    its own, the rule of class and dtype. Without a reference only checks against an oracle are judged; that
    is also how the reference itself is judged. Where the reference fails an oracle, an arm that meets every
    oracle may depart from it.

    A number carries no dtype of its own: it is held to double precision where every floating tensor of the
    reference is float64, and to single precision otherwise.
    """
    if arm is None:
        return ParityResult(ParityVerdict.UNCHECKED, parity, reason="there is no evidence of this arm")
    if units_expected is not None and units_done is not None and units_done < units_expected * (1 - 1e-9):
        return ParityResult(
            ParityVerdict.DIFFERENT, parity, reason=f"did {units_done:g} of {units_expected:g} units"
        )
    oracles = oracle_deviations(arm, checks, parity, bounds)
    compared, unjudged = _compare_all(reference, arm, checks, parity, bounds)
    failed = failed_oracles(reference, checks)
    if (
        reference
        and not unjudged
        and compared
        and digests_of(reference) == digests_of(arm)
        and all(map(_comparable, compared + oracles))
    ):
        verdict, reason = ParityVerdict.IDENTICAL, _note(failed)
    else:
        verdict, reason = _decide(compared, oracles, unjudged, failed, parity)
    deviations = tuple(compared + oracles)
    return ParityResult(
        verdict, parity, max(deviations, key=lambda d: d.ratio, default=None), deviations, reason
    )


def failed_oracles(reference: Evidence | None, checks: Sequence[Check]) -> list[Deviation]:
    """What an oracle holds against the reference itself."""
    return (
        [d for d in oracle_deviations(reference, checks, Parity.EXACT, {}) if not d.ok] if reference else []
    )


def _compare_all(
    reference: Evidence | None,
    arm: Evidence,
    checks: Sequence[Check],
    parity: Parity,
    bounds: Mapping[str, float],
) -> tuple[list[Deviation], list[str]]:
    """Deviations from the reference, and the checks that neither arm has evidence for."""
    compared: list[Deviation] = []
    unjudged = []
    for check in checks:
        if not is_own(check):
            found = reference_deviations(reference, arm, check, parity, bounds) if reference else []
            compared += found
            unjudged += [] if found else [check.name]
    return compared, unjudged


def _note(reference_fails: Sequence[Deviation]) -> str:
    return f"the reference itself fails an oracle: {reference_fails[0]}" if reference_fails else ""


def _comparable(deviation: Deviation) -> bool:
    return math.isfinite(deviation.value)


def _decide(
    compared: Sequence[Deviation],
    oracles: Sequence[Deviation],
    unjudged: Sequence[str],
    reference_fails: Sequence[Deviation],
    parity: Parity,
) -> tuple[ParityVerdict, str]:
    """Verdict and reason from deviations in the declared order of their checks."""
    departed = [deviation for deviation in compared if not deviation.ok]
    beyond = [deviation for deviation in oracles if not deviation.ok]
    # An arm that reproduces the reference inherits its failure against an oracle but must not add one.
    inherited = {deviation.check for deviation in reference_fails} if compared else set()
    if own := [d for d in beyond if d.check not in inherited or not _comparable(d)]:
        return ParityVerdict.DIFFERENT, f"fails its oracle: {own[0]}"
    if departed:
        if reference_fails and not beyond and all(map(_comparable, departed)):
            return (
                ParityVerdict.WITHIN_TOLERANCE,
                f"{_note(reference_fails)}; this arm departs from it and meets every oracle",
            )
        return ParityVerdict.DIFFERENT, f"departs from the reference: {departed[0]}"
    if unjudged:
        return ParityVerdict.UNCHECKED, f"no evidence to compare for {', '.join(unjudged)}"
    if not compared and not oracles:
        return ParityVerdict.UNCHECKED, "the workload declares no checks"
    if parity is Parity.STOCHASTIC and compared:
        return ParityVerdict.UNCHECKED, "needs paired seeds"
    return ParityVerdict.WITHIN_TOLERANCE, _note(reference_fails)
