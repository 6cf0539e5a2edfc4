"""Words behind a command, read as they can only be meant, or refused in their own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config import spelling
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["probe1d"], ["workload=probe1d"]),
        (["+measure.rounds=3", "++name=a"], ["measure.rounds=3", "name=a"]),
        (["~measure.rounds"], ["~measure.rounds"]),
        (["group@package=x", "hydra.verbose=true"], ["group@package=x", "hydra.verbose=true"]),
        (["--cfg", "job", "name=a"], ["--cfg", "job", "name=a"]),
        (["toggles.a.b=3", "workload.x.y=3"], ["toggles.a.b=3", "workload.x.y=3"]),
        (["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"], ["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"]),
        (["axes.a='x,y'", 'axes.b="]"'], ["axes.a='x,y'", 'axes.b="]"']),
        (["name=-x,y"], ["name=-x,y"]),
        (["workload.args=it's, said"], ["workload.args=it's, said"]),
    ],
    ids=str,
)
def test_what_can_be_meant_is_taken(words: list[str], read: list[str]) -> None:
    assert spelling.read("sweep", words) == read


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dry-run", "true"], "write dry_run=true"),
        (["--mem_gb=4"], "--mem_gb is no option of perfsweep sweep; write cluster.memory=4G"),
        (["--gres", "gpu:a100:2"], "cluster.gpus=2 cluster.gpu_flag=gres cluster.gpu_type=a100"),
        (["cluster.mem_gb=0.5"], "cluster.mem_gb is what submitit calls it; write cluster.memory=512M"),
        (["cluster.additional_parameters.nice=1"], "leave it out: options of sbatch are a list"),
        (["hydra/launcher=submitit_slurm"], "`perfsweep init --launcher=FILE` makes a site profile"),
        (["hydra.launcher.mem_gb=4"], "perfsweep submits by itself, with cluster=slurm"),
        (
            ["frontier.rounds=2"],
            "frontier.rounds is an option of perfsweep frontier, and not of sweep; choose",
        ),
        (["design=3"], "design is unknown; did you mean sweep.designs? choose from: workload, toggles"),
        (
            ["measure.round=3"],
            "measure.round is unknown; did you mean rounds? measure has: rounds, iterations",
        ),
        (["axes.a=[1,", "x=2]"], "a closing ] is missing: write 'axes.a=[1,]'"),
        (["axes.a={b:[(1"], "a closing )]} is missing: write 'axes.a={b:[(1)]}'"),
        (["axes.a=[1)"], "axes.a=[1): ) closes nothing; take it away"),
        (
            ["axes.a=1,2"],
            "several values are a list: write 'axes.a=[1,2]'; a text with a comma is \"axes.a='1,2'\"",
        ),
        (["workload.args=a,b"], "several values are a list: write 'workload.args=[a,b]'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_one_sentence(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        spelling.read("sweep", words)
    assert says in str(refused.value)


def test_a_command_without_workloads_takes_no_bare_one() -> None:
    with pytest.raises(ConfigError, match=r"^digits is no FIELD=VALUE; `perfsweep doctor --help` lists"):
        spelling.read("doctor", ["digits"])


@pytest.mark.parametrize("command", ["sweep", "tune", "run", "profile"])
def test_the_folder_of_a_sweep_is_told_from_a_workload(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.jsonl").touch()
    with pytest.raises(ConfigError, match=r"^mine: this is the folder of a sweep.*`perfsweep compare mine`"):
        spelling.read(command, ["mine"])


@pytest.mark.parametrize("command", ["tune", "frontier"])
def test_a_search_has_no_named_sweep_and_says_what_to_do(command: str) -> None:
    with pytest.raises(ConfigError, match=rf"^sweep=demo: `perfsweep {command}` chooses its own arms\."):
        spelling.read(command, ["workload=digits", "sweep=demo"])
