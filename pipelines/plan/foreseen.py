"""What a plan knows will be missing: witnesses that nothing counts, columns that it cannot fill.

Counters are known for certain only when a trial has run. But the code that returns a counter names it. So a
witness that is neither in the sources of the workload nor in those of the shared counters is misspelt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfsweep.pipelines import trial
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.statistics.paired_steps import LEAST_STEPS
from perfsweep.pipelines.store.records import Manifest
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration, Toggle, Workload
from perfsweep.workloads.declarations import ANYTHING
from perfsweep.workloads.errors import ConfigError, did_you_mean

_GENERAL = ("compiles.py", "counters.py", "untimed.py")
"""Sources of trials that name the counters which every workload has; read, not imported: some need torch."""


def refuse_unknown(cls: type[Declaration], toggles: Iterable[Toggle]) -> None:
    """Refuse a level whose witness no source names; workloads that are installed have tests of their own.

    Raises
    ------
    ConfigError
        There is one; the message names it and what comes nearest.
    """
    named = {
        level.witness: f"{toggle.name}={level.value}"
        for toggle in toggles
        for level in (*toggle.levels, *([toggle.numbers.like] if toggle.numbers else []))
        if level.witness and level.witness != ANYTHING
    }
    if not named or registry.import_root(cls) is None:
        return
    bases = [base for base in cls.__mro__ if issubclass(base, Workload) and base is not Workload]
    own = {file for base in bases for file in registry.sources(base)}  # those elsewhere may be installed
    trials = Path(str(trial.__file__)).parent
    files = [*own, *(trials / name for name in _GENERAL)]
    words = {word for file in files if file.suffix == ".py" for word in _words(file)}
    patterns = [re.compile(word) for word in words if "*" in word]
    for witness, level in named.items():
        if witness in words or any(pattern.fullmatch(witness) for pattern in patterns):
            continue
        hint = did_you_mean(witness, (word for word in words if "*" not in word))
        raise ConfigError(
            f"toggles.{level}: its witness {witness} is no counter; {hint}counters() of {cls.__name__} must"
            " return it"
        )


def _words(file: Path) -> Iterator[str]:
    """Names and texts of a source, but for those of witnesses; a text with gaps as a pattern."""
    tree = ast.parse(file.read_bytes())
    witnesses = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "witness"
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in witnesses:
                yield text.replace("*", "")
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield text
            case ast.keyword(arg=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".*" for p in parts)


PERCENTILES = ("p50", "p95", "p99")


def unfilled_columns(manifest: Manifest) -> list[str]:
    """Say of the chosen columns that will stay empty what they need."""
    return [*_without_setting(manifest), *_of_too_few_steps(manifest)]


def _without_setting(manifest: Manifest) -> list[str]:
    """Name the columns whose setting is not given."""
    target = "no target is named to train to; give measure.target, and measure.target_figure"
    price = "no price is given; give cluster.price, now, or with the same command later"
    missing = {
        ("target", "target_steps"): target if manifest.sweep.measure.target is None else "",
        ("cost", "job_cost"): "" if manifest.sweep.price else price,
    }
    return [
        f"{_columns(asked)}: {why}"
        for names, why in missing.items()
        if why and (asked := [name for name in names if name in manifest.sweep.columns])
    ]


def _of_too_few_steps(manifest: Manifest) -> list[str]:
    """Name the percentiles that trials are too short for, and the iterations that would do.

    Nothing is said of jobs, whose length only they know.
    """
    asked = [name for name in dict.fromkeys(manifest.sweep.columns) if name in PERCENTILES]
    planned = manifest.sweep.measure.iterations
    if not asked or (planned or 0) >= LEAST_STEPS or declared_by(manifest).shape == "job":
        return []
    # The cadence, to which iterations are rounded up, is known once the workload is set up.
    return [
        f"{_columns(asked)}: percentiles need {LEAST_STEPS} steps in each round and are withheld where there"
        f" are fewer; measure.iterations={LEAST_STEPS} would do"
    ]


def _columns(names: list[str]) -> str:
    return f"report.columns=[{','.join(names)}]"


def refuse_target(command: SweepCommand, cls: type[Declaration]) -> None:
    """Refuse a target that no training could reach."""
    measure = command.measure
    if measure.target is None:
        return
    if cls.shape == "job":
        raise ConfigError(
            f"measure.target={measure.target:g}: {cls.__name__} is a job, which ends by itself; time to"
            " quality is of trainings"
        )
    if measure.target_steps < measure.target_every * measure.target_looks:
        raise ConfigError(
            f"measure.target_steps={measure.target_steps} leaves no room for {measure.target_looks} looks,"
            f" one every {measure.target_every} iterations; raise it"
        )
