"""How each tool is used, as its documentation does it, and what it then says of each plant."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from peers.step import PLANTS

STEP = Path(__file__).with_name("step.py")

IMPORT_S = 2.5
"""Of an interpreter that imports torch: what is left of a tool's time goes into measuring."""


@dataclass(frozen=True)
class Said:
    """The ratio of times that a tool gives, and whether it calls that a difference."""

    ratio: float
    called: bool


def _run(*words: str, **variables: str) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(words, env=env, check=True, text=True, capture_output=True).stdout


def _each_s(seconds: float) -> float:
    return max(0.2, (seconds - IMPORT_S) / (1 + len(PLANTS)))


def perfsweep(folder: Path, seconds: float) -> dict[int, Said]:
    """Its verdicts, with a margin of half a per cent."""
    work = ("workload=peers.workload:Peer", f"axes.plant=[{','.join(map(str, PLANTS))}]")
    stop = ("measure.margin=0.005", "measure.precision=0.004", "measure.rounds=6", "measure.rounds_max=400")
    ends = ("measure.servers=2", f"measure.budget_s={seconds}", f"runs={folder}", "sweep.name=peers")
    command = (sys.executable, "-m", "perfsweep")
    _run(*command, "sweep", *work, *stop, *ends, "tracking=disabled")
    (sweep,) = folder.glob("*-peers")
    found = json.loads(_run(*command, "compare", str(sweep), "--json"))["effects"]
    return {int(one["level"]): Said(one["ratio"], one["verdict"] in ("faster", "slower")) for one in found}


TORCH = """
import json, sys
from peers.step import step
from torch.utils.benchmark import Timer
for plant in (0, *map(int, sys.argv[2:])):
    found = Timer("step()", globals={"step": step(plant)}).blocked_autorange(min_run_time=float(sys.argv[1]))
    print(json.dumps([found.median, found.iqr, len(found.times)]))
"""


def torch_benchmark(folder: Path, seconds: float) -> dict[int, Said]:
    """One process, arm after arm; medians further apart than the 95 % interval that their quartiles give."""
    lines = _run(sys.executable, "-c", TORCH, str(_each_s(seconds)), *map(str, PLANTS)).splitlines()
    (base, base_iqr, base_n), *arms = map(json.loads, lines)
    said = {}
    for plant, (median, iqr, n) in zip(PLANTS, arms, strict=True):
        # Standard error of a median of normal values: 1.253 sd / sqrt(n), and their IQR is 1.349 sd.
        error = 1.253 / 1.349 * math.sqrt(iqr**2 / n + base_iqr**2 / base_n)
        said[plant] = Said(median / base, abs(median - base) > 1.96 * error)
    return said


def pyperf(folder: Path, seconds: float) -> dict[int, Said]:
    """Two processes an arm; Student's t at 95 %, as `pyperf compare_to` tests it."""
    left_s = seconds / (1 + len(PLANTS)) - 2 * IMPORT_S
    arms = []
    for number, plant in enumerate((0, *PLANTS)):
        file = folder / f"{number}.json"
        values = ("-p", "2", "-w", "1", "-n", str(max(3, round(left_s / 2 / 0.1))), "--loops", "128")
        inherited = ("--inherit-environ", "PLANT,OMP_NUM_THREADS,PYTHONPATH", "-o", str(file))
        _run(sys.executable, str(STEP), *values, *inherited, PLANT=str(plant))
        runs = json.loads(file.read_text())["benchmarks"][0]["runs"]
        arms.append([value for run in runs for value in run.get("values", [])])
    return _tested(arms, equal_variances=True)


def hyperfine(folder: Path, seconds: float) -> dict[int, Said]:
    """Whole programs of 400 steps; Welch's t at 95 %, as the script in its repository tests it."""
    runs = max(2, round(seconds / (1 + len(PLANTS)) / (IMPORT_S + 0.5)))
    commands = [f"{sys.executable} {STEP} {plant} 400" for plant in (0, *PLANTS)]
    file = folder / "hyperfine.json"
    _run("hyperfine", "-N", "-r", str(runs), "--export-json", str(file), *commands)
    return _tested([one["times"] for one in json.loads(file.read_text())["results"]], equal_variances=False)


def _tested(arms: Sequence[Sequence[float]], equal_variances: bool) -> dict[int, Said]:
    base, *others = arms
    tests = [stats.ttest_ind(one, base, equal_var=equal_variances).pvalue < 0.05 for one in others]
    means = [statistics.fmean(one) / statistics.fmean(base) for one in others]
    return {plant: Said(*one) for plant, one in zip(PLANTS, zip(means, tests, strict=True), strict=True)}


BENCHMARKS = """
import pytest
from peers.step import step

@pytest.mark.parametrize("plant", %s)
def test_step(benchmark, plant):
    benchmark(step(max(plant, 0)))
"""


def pytest_benchmark(folder: Path, seconds: float) -> dict[int, Said]:
    """One process, arm after arm; means that `--benchmark-compare-fail=mean:1%` would not let pass."""
    (folder / "test_step.py").write_text(BENCHMARKS % [-1, *PLANTS])
    file = folder / "pytest.json"
    options = (
        f"--benchmark-max-time={_each_s(seconds)}",
        f"--benchmark-json={file}",
        "-p",
        "no:cacheprovider",
    )
    _run(sys.executable, "-m", "pytest", str(folder / "test_step.py"), *options, "--rootdir", str(folder))
    base, *arms = [one["stats"]["mean"] for one in json.loads(file.read_text())["benchmarks"]]
    ratios = zip(PLANTS, (mean / base for mean in arms), strict=True)
    return {plant: Said(ratio, abs(ratio - 1) > 0.01) for plant, ratio in ratios}


TOOLS: Mapping[str, Callable[[Path, float], dict[int, Said]]] = {
    "perfsweep": perfsweep,
    "torch.utils.benchmark": torch_benchmark,
    "pyperf": pyperf,
    "hyperfine": hyperfine,
    "pytest-benchmark": pytest_benchmark,
}


def timed(tool: str, folder: Path, seconds: float) -> tuple[dict[int, Said], float]:
    """What a tool says, and the seconds that it took, start to end."""
    started = time.monotonic()
    return TOOLS[tool](folder, seconds), time.monotonic() - started
