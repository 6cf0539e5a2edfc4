"""Check in a test that a workload keeps its contract, as scikit-learn's `check_estimator` checks estimators.

::

    from perfsweep.testing import check_workload

    def test_my_workload_keeps_its_contract():
        check_workload("my_workload:MyWorkload", "workload.size=8")

The trials and rules are those of `perfsweep check`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsweep.pipelines.check.checked import checking
from perfsweep.pipelines.config import composition
from perfsweep.workloads.api import LevelValue

__all__ = ["Conformance", "NotConformant", "check_workload"]


class NotConformant(AssertionError):
    """A workload breaks rules; the message names each rule with what to do."""


@dataclass(frozen=True)
class Conformance:
    """What was compared with its base.

    Attributes
    ----------
    levels : levels that take effect and keep their parity class, as ``toggle=level``
    left_out : arms and levels that could not be judged here, each with the reason
    choices : levels whose class their author chose, and how a sweep will report them
    """

    levels: tuple[str, ...]
    left_out: Mapping[str, str]
    choices: Mapping[str, str]


def check_workload(
    workload: str,
    *values: str,
    levels: Mapping[str, Sequence[LevelValue]] | None = None,
    baseline: bool = True,
) -> Conformance:
    """Run a workload briefly, in processes of its own: each level against the nearest legal base without it.

    A level must take effect: its witness changes, or any counter or result if it names no witness. Its
    results must stay in its parity class, and its data must be the same. The baseline must give the same
    results in fresh processes and with its cache, have evidence, leave no state in the process, and read no
    value that a GPU would have to wait for.

    Parameters
    ----------
    workload : a name from `perfsweep list`, or ``package.module:Class``
    values : as after `perfsweep check`: ``workload.FIELD=VALUE``, ``toggles.NAME=LEVEL`` of all arms,
        ``measure.FIELD=VALUE``
    levels : only these, by toggle; None: all
    baseline : False: only levels are judged

    Raises
    ------
    NotConformant
        The workload breaks a rule.
    ConfigError
        A value, toggle or level does not exist, or the baseline exceeds its time limit.
    """
    cfg = composition.compose("run", [f"workload={workload}", *values])
    with checking(cfg, values, levels=levels) as checked:
        findings = [str(one) for one in (checked.findings() if baseline else checked.of_levels())]
    if findings:
        raise NotConformant("\n".join([f"{checked.name} breaks its contract:", *findings]))
    refused = {f"{one.toggle}={one.level}": one.reason for one in checked.manifest.refused}
    return Conformance(tuple(checked.held), refused | checked.left_out, checked.choices)
