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
        (["--cfg", "job", "name=a"], ["--cfg", "job", "name=a"]),
        (["toggles.a.b=3", "workload.x.y=3"], ["toggles.a.b=3", "workload.x.y=3"]),
        (["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"], ["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"]),
        (["axes.a='x,y'", 'axes.b="]"'], ["axes.a='x,y'", 'axes.b="]"']),
        (["workload.args=it's, said"], ["workload.args=it's, said"]),
    ],
    ids=str,
)
def test_what_can_be_meant_is_taken(words: list[str], read: list[str]) -> None:
    assert spelling.read("sweep", words) == read


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--mem_gb=4"], "--mem_gb is no option of perfsweep sweep; write cluster.memory=4G"),
        (["--gres", "gpu:a100:2"], "cluster.gpus=2 cluster.gpu_flag=gres cluster.gpu_type=a100"),
        (["--gres", "gpu:2", "--name=a"], "write cluster.gpus=2 cluster.gpu_flag=gres"),
        (["--setup=module"], "write cluster.setup=module"),
        (["digitz"], "did you mean workload=digits?"),
        (["workload=probe1d", "digitz"], "digitz is no FIELD=VALUE; `perfsweep sweep --help` lists"),
        (["cluster.mem_gb=0.5"], "cluster.mem_gb is what submitit calls it; write cluster.memory=512M"),
        (["cluster.additional_parameters.nice=1"], "leave it out: options of sbatch are a list"),
        (["hydra/launcher=submitit_slurm"], "`perfsweep init --launcher=FILE` makes a site profile"),
        (["design=3"], "design is unknown; did you mean sweep.designs? choose from: workload, toggles"),
        (["axes.a={b:[(1"], "a closing )]} is missing: write 'axes.a={b:[(1)]}'"),
        (["axes.a=[1)"], "axes.a=[1): ) closes nothing; take it away"),
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


@pytest.mark.parametrize("command", ["sweep", "run", "profile"])
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
