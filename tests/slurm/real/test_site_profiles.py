"""What a site profile can say: shared nodes, resources by arm, scratch, containers."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from bench import Bench, ends, over, running
from waiting import until

from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

ROOT = Path(__file__).parents[3]


@pytest.fixture
def image(tmp_path: Path) -> str:
    """What starts Python as an image does that holds a shell and no Slurm."""
    programs = tmp_path / "image"
    programs.mkdir()
    for name in ("sh", "sleep"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return f"env PATH={programs} {sys.executable}"


@pytest.mark.slow
def test_a_job_that_asks_for_cores_by_gpu_has_them_and_no_limit_of_the_shell_that_submits(
    bench: Bench,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (7168, hard))
    try:
        ex = bench.executor(gpus=1, cpus_per_task=2, cpu_flag="cpus-per-gpu", srun_args=["--exact"])
        ex.submit([bench.job("own", 'echo "$(ulimit -c) $SLURM_CPUS_PER_TASK" > own.txt')])
        assert over(ex) == {"own": JobState.ENDED}
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    limit, cores = bench.text("own.txt").split()
    assert limit not in ("7", "14") and cores == "2"


@pytest.mark.slow
def test_scratch_is_a_folder_of_the_job_and_gone_after_it(bench: Bench) -> None:
    ex = bench.executor(scratch=str(bench.folder / "node"))
    ex.submit(
        [
            bench.job(
                "one",
                'touch "$PERFSWEEP_SCRATCH/kept"; [ "$TMPDIR" = "$PERFSWEEP_SCRATCH" ] && ls node > seen',
            )
        ]
    )
    assert over(ex) == {"one": JobState.ENDED}
    assert re.fullmatch(r"perfsweep-\d+\n", bench.text("seen"))
    until(lambda: not list((bench.folder / "node").iterdir()), "its removal")


@pytest.mark.slow
def test_a_job_in_a_container_queues_itself_again_before_its_time_limit(bench: Bench, image: str) -> None:
    ex = bench.executor(python=image)
    loop = "echo up > up; while :; do sleep 0.1; done"
    stop = f"trap 'trap : USR2; echo warned >> seen; exit 75' USR2; {loop}"
    ex.submit([bench.job("long", f"if [ -e seen ]; then exit 0; fi; {stop}")])
    running(ex, "long")
    until(lambda: bench.text("up"))
    array = bench.array(ex)
    bench.cluster.client("scancel", "--signal=USR2", f"{array}_0")
    until(lambda: bench.show(f"{array}_0")["Restarts"] == "1", "a requeue")
    bench.start_now(f"{array}_0")
    assert over(ex) == {"long": JobState.ENDED}
    assert len(ex.journal.submissions) == 1, "it continued in its own requeue, not in a second job"


@pytest.mark.slow
def test_the_status_of_a_job_in_a_container_is_its_own(bench: Bench, image: str) -> None:
    ex = bench.executor(python=image, scratch=str(bench.folder / "node"))
    ex.submit([bench.job("bad", "exit 7")])
    assert over(ex) == {"bad": JobState.FAILED}
    assert ends(ex, "bad") == [End.FAILED]
    assert bench.show(f"{bench.array(ex)}_0")["ExitCode"] == "7:0"


OWN = """
import os
from dataclasses import dataclass

import torch

from perfsweep.workloads.api import Check, Evidence, Level, Toggle, Workload


@dataclass
class Config:
    size: int = 8


class Seen(Workload):
    Config = Config
    own_device = True
    toggles = tuple(
        Toggle(name, (Level("off"), Level("on", witness=name)), "count more")
        for name in ("one", "two", "three")
    )
    checks = (Check("total"),)

    def setup(self, config, levels, context):
        self.counts = {name: 0 for name in levels}
        self.levels, self.steps = levels, 0
        self.local = os.path.realpath(context.scratch_dir)
        print("scratch", self.local)

    def step(self, clock):
        self.steps += 1
        for name, level in self.levels.items():
            self.counts[name] += level == "on"

    def progress(self):
        return float(self.steps)

    def evidence(self):
        return Evidence({"total": torch.ones(2)})

    def numbers(self):
        gpu = os.environ["CUDA_VISIBLE_DEVICES"]
        return {"gpu": float(gpu), "cores": float(len(os.sched_getaffinity(0)))}

    def counters(self):
        return self.counts
"""


def with_gpus(bench: Bench) -> dict[str, str]:
    """The variables of commands whose nodes have the GPUs that Slurm hands out, by NVML's pretended word."""
    folder = bench.folder / "nvml"
    folder.mkdir()
    (folder / "pynvml.py").write_text(NVML)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{bench.env({})['PYTHONPATH']}"}


NVML = """
import sys
from fake_nvml import FakeNvml

sys.modules[__name__] = FakeNvml({"name": "H100", "uuid": "GPU-0"}, {"name": "H100", "uuid": "GPU-1"})
"""


@pytest.mark.slow
def test_packs_share_an_exclusive_node_each_with_a_gpu_of_its_own_and_arms_ask_for_their_own_time(
    bench: Bench,
) -> None:
    (bench.folder / "seen.py").write_text(OWN)
    (bench.folder / "seen.yaml").write_text(
        PROFILE.format(conf=bench.cluster.settings.conf, node=bench.folder / "node")
    )
    words = ("workload=seen:Seen", "sweep=quick", "name=seen", "tracking=disabled")
    done = bench.perfsweep("sweep", *words, **with_gpus(bench))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "up to 2 packs in a job" in done.stdout
    assert "cluster.arm_resources: no arm of this sweep has four=on" in done.stdout
    runs = bench.folder / "runs" / "seen"
    names = [one.names for one in Journal(runs / "submissions.jsonl").submissions.values()]
    assert sorted(names) == [("p000+p001",), ("p002",)] or sorted(names) == [("p000",), ("p001+p002",)]
    numbers: dict[str, set[tuple[float, float]]] = defaultdict(set)
    for file in runs.glob("trials/*/*-r*/record.json"):
        own = json.loads(file.read_text())["numbers"]
        numbers[file.parent.name[:4]].add((own["gpu"], own["cores"]))
    shared = next(name for some in names for name in some if "+" in name).split("+")
    assert {gpu for name in shared for gpu, _ in numbers[name]} == {0.0, 1.0}, numbers
    assert all(len(numbers[name]) == 1 for name in shared), "a pack keeps its share"
    logs = [file.read_text() for file in runs.glob("trials/*/*/log.txt")]
    assert logs and all(f"scratch {bench.folder}/node/perfsweep-" in text for text in logs)
    assert not list((bench.folder / "node").iterdir()), "what was on the node's disk is gone"
    scripts = {file.read_text() for file in (runs / "submissions").glob("*.sh")}
    assert sum("--time=7\n" in script for script in scripts) == 1


PROFILE = """
sweeps:
  quick:
    toggles: [one, two, three]
    measure: {{rounds: 2, iterations: 20, servers: 1, look: true, repeats: 0, timed_parity: false}}
    cluster:
      executor: slurm
      slurm_conf: {conf}
      gpus: 1
      cpus_per_task: 1
      memory: 3500M
      exclusive: true
      packs_per_job: 2
      arms_per_pack: 2
      time_min: 20
      scratch: {node}
      arm_resources: [{{levels: {{three: on}}, time_min: 7}}, {{levels: {{four: on}}, time_min: 8}}]
      poll_min_s: 0.2
      poll_max_s: 0.5
      fs_delay_s: 1
"""
