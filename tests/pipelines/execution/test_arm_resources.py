"""Packs with certain arms ask for other resources, alone or in a shared job."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import ArmResources, ClusterConfig, DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack_jobs import resources_of, unused
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.api import Device

LARGE = ArmResources(levels={"amp": "bf16"}, memory="100G")


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    """Three packs of two arms, of which one has mixed precision."""
    design = DesignConfig(kind="one_at_a_time", toggles=["amp", "tf32", "zero_grad"])
    command = SweepCommand(workload={"name": "digits"}, cluster=ClusterConfig(arms_per_pack=2))
    command.sweep.name, command.sweep.designs = "demo", [design]
    return plan.make_plan(command, Device())


def asked(manifest: Manifest, *rules: ArmResources) -> list[dict[str, object]]:
    return [resources_of(manifest, pack, ClusterConfig(arm_resources=[*rules])) for pack in manifest.packs]


def test_a_rule_is_about_the_packs_that_hold_such_an_arm(manifest: Manifest) -> None:
    found = asked(manifest, LARGE)
    holds = [any(manifest.arm(arm).levels["amp"] == "bf16" for arm in pack.arms) for pack in manifest.packs]
    assert 0 < sum(holds) < len(holds)
    assert found == [{"memory": "100G"} if one else {} for one in holds]


def test_of_several_rules_the_last_that_fits_says_each_field(manifest: Manifest) -> None:
    found = asked(manifest, ArmResources(memory="8G", time_min=9), LARGE)
    assert {"memory": "100G", "time_min": 9} in found and {"memory": "8G", "time_min": 9} in found


def test_levels_that_yaml_reads_as_booleans_are_meant_as_written(manifest: Manifest) -> None:
    assert not unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": False})]), manifest)
    (said,) = unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": "bf61"})]), manifest)
    assert said == "cluster.arm_resources: no arm of this sweep has amp=bf61, so that rule changes nothing"


def test_a_rule_that_cannot_be_submitted_is_refused_by_its_place() -> None:
    with pytest.raises(ClusterError, match=r"cluster.arm_resources\[1\]: cluster.memory is set and .*none"):
        ClusterConfig(mem_flag="none", arm_resources=[ArmResources(time_min=5), LARGE]).check()
    with pytest.raises(ClusterError, match=r"cluster.arm_resources\[0\]: cluster.time_min=0 must be"):
        ClusterConfig(arm_resources=[ArmResources(time_min=0)]).check()


def test_a_shared_job_asks_for_the_gpus_and_cores_of_all_its_packs(
    manifest: Manifest, tmp_path: Path
) -> None:
    cluster = ClusterConfig(executor="slurm", gpus=2, cpus_per_task=3, packs_per_job=3, exclusive=True)
    packs = list(manifest.packs)[:3]
    (script,) = launch.batch_texts(SweepFolder(tmp_path), manifest, packs, cluster, Device(), ())
    for line in ("--gres=gpu:6", "--cpus-per-task=9", "--array=0-0%1", "--exclusive"):
        assert f"#SBATCH {line}" in script
    cluster.arm_resources = [LARGE]
    scripts = launch.batch_texts(SweepFolder(tmp_path), manifest, packs, cluster, Device(), ())
    assert sorted("--mem=100G" in script for script in scripts) == [False, True]
