"""Every level changes what runs: its witness moves against its base."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.workload import Prover

pytestmark = pytest.mark.workloads

HERE = Device(compiler=True)
SPACE = Space(Prover.toggles, ProverConfig(), HERE)
BY_PIPELINES = ("low_precision_ops", "compiled_graphs", "cache_hits", "cudagraph_recordings")
LEVELS = [
    pytest.param(toggle.name, level, id=f"{toggle.name}={level.value}")
    for toggle in Prover.toggles
    for level in toggle.levels[1:]
    if not level.unsupported(HERE) and level.witness not in BY_PIPELINES
]
FEW = {"queries": 3, "corruptions": 5}


@pytest.fixture(scope="module")
def counters_of_bases():
    """Counters of bases that several levels have in common."""
    return {}


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_every_level_moves_its_witness_against_its_base(solve, counters_of_bases, name, level):
    value = 16 if (name, level.value) == ("slab_size", 512) else level.value
    arm = SPACE.closure({name: value})
    if name in ("pad_to_slab", "refill", "warmup"):
        arm = {**arm, "slab_size": 16}  # 18 candidates leave a last slab that is not full
    base = SPACE.without(arm, name)
    key = tuple(sorted(base.items()))
    if key not in counters_of_bases:
        counters_of_bases[key] = solve(base, kind="counting", **FEW).counters()
    counters = solve(arm, kind="counting", **FEW).counters()
    assert counters[level.witness] != counters_of_bases[key][level.witness]
