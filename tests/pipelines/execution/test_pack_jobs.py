"""Jobs of packs: what they ask for."""

from __future__ import annotations

import pytest

from pipelines.config.types import ClusterConfig, DesignConfig
from pipelines.execution import pack_jobs
from pipelines.plan.plan import make_plan
from workloads.api import Device


def test_the_shapes_of_many_packs_take_one_look_for_their_workload(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding a class among what is installed costs 30 ms: for a thousand packs that was half a minute."""
    sweep = command(DesignConfig("ladder", levels={"slab": list(range(2, 60))}))
    sweep.cluster = ClusterConfig(arms_per_pack=2)
    manifest = make_plan(sweep, Device())
    assert len(manifest.packs) == 58
    looks = []
    real = pack_jobs.load_workload
    monkeypatch.setattr(pack_jobs, "load_workload", lambda *asked: looks.append(asked) or real(*asked))
    pack_jobs._workload.cache_clear()
    assert len(pack_jobs.shapes(manifest, ClusterConfig(), Device())) == 58
    assert len(looks) == 1
