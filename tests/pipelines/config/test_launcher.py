"""What submitit and Hydra's launcher were told becomes a profile; nothing of it is lost without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import submitit

from perfsweep.pipelines.config.launcher import LEFT_OUT, READ, meant, profile_of

PAGE = Path(__file__).parents[3] / "docs" / "slurm.md"

HYDRAS = """
submitit_folder timeout_min cpus_per_task gpus_per_node tasks_per_node mem_gb nodes name
stderr_to_stdout partition qos comment constraint exclude gres cpus_per_gpu gpus_per_task mem_per_gpu
mem_per_cpu account signal_delay_s max_num_timeout additional_parameters array_parallelism setup
"""
"""Fields of ``hydra_plugins.hydra_submitit_launcher.config.SlurmQueueConf``, version 1.2.0."""


@pytest.mark.parametrize("name", sorted({*HYDRAS.split(), *submitit.SlurmExecutor._valid_parameters()}))
def test_every_parameter_of_theirs_is_read_or_left_out_with_a_reason_and_is_on_the_page(name: str) -> None:
    assert (name in READ) != (name in LEFT_OUT)
    assert meant(f"slurm_{name}").startswith(("write cluster.", "leave it out: "))
    table = PAGE.read_text().partition("| Hydra's launcher, submitit |")[2].partition("\n\n")[0]
    assert f"`{name}`" in table


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"time": "1-02:30"}, {"time_min": 1590}),
        ({"time": "2:30:01"}, {"time_min": 151}),
        ({"mem_gb": 1.5}, {"memory": "1536M"}),
        ({"mem_per_cpu": "4G"}, {"memory": "4G", "mem_flag": "mem-per-cpu"}),
        ({"gpus_per_node": "a100:2"}, {"gpus": 2, "gpu_flag": "gpus-per-node", "gpu_type": "a100"}),
        ({"cpus_per_gpu": 8}, {"cpus_per_task": 8, "cpu_flag": "cpus-per-gpu"}),
        ({"exclusive": "user"}, {"sbatch": ["--exclusive=user"]}),
        ({"account": "${oc.env:MINE}", "qos": None}, {"account": "${oc.env:MINE}"}),
        ({"hydra": {"launcher": {"nodes": 2}}}, {"nodes": 2}),
        (
            {"additional_parameters": {"mem-per-gpu": "8G", "mail-type": "END", "contiguous": True}},
            {"memory": "8G", "mem_flag": "mem-per-gpu", "sbatch": ["--mail-type=END", "--contiguous"]},
        ),
    ],
    ids=str,
)
def test_a_launchers_file_is_read(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert profile_of(theirs) == ({"gpus": 0, **ours}, {})


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        ({"gres": "gpu:1,tmp:10G"}, "gpu:1,tmp:10G cannot be read"),
        ({"gpus_per_node": -1}, "-1 cannot be read"),
        ({"partition": "${site.partition}"}, "it refers to another configuration: ${site.partition}"),
        ({"defaults": ["base", "_self_"]}, "what base says is not read"),
        ({"mem_gigs": 4}, "perfsweep does not know it"),
        ({"additional_parameters": {"signal": "USR1@9"}}, "perfsweep writes that itself"),
        ({"max_num_timeout": 3}, LEFT_OUT["max_num_timeout"]),
    ],
    ids=str,
)
def test_what_a_profile_does_not_hold_is_named(theirs: dict[str, Any], reason: str) -> None:
    fields, left = profile_of(theirs)
    assert (fields, [*left.values()]) == ({"gpus": 0}, [reason])
