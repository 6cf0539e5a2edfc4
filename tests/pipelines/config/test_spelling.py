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
        (["mine:Own", "name=a"], ["workload=mine:Own", "name=a"]),
        (["+measure.rounds=3", "++name=a"], ["measure.rounds=3", "name=a"]),
        (["~measure.rounds"], ["~measure.rounds"]),
        (["group@package=x", "hydra.verbose=true"], ["group@package=x", "hydra.verbose=true"]),
        (["--cfg", "job", "name=a"], ["--cfg", "job", "name=a"]),
        (["--cfg=job", "name=a"], ["--cfg=job", "name=a"]),
        (["-c"], ["-c"]),
        (["--resolve", "name=a"], ["--resolve", "name=a"]),
        (["toggles.a.b=3", "workload.x.y=3"], ["toggles.a.b=3", "workload.x.y=3"]),
        (["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"], ["axes.a=[1,[2,3]]", "axes.b={x: 1, y: (2)}"]),
        (["axes.a='x,y'", 'axes.b="]"'], ["axes.a='x,y'", 'axes.b="]"']),
        (["axes.a=it\\'s"], ["axes.a=it\\'s"]),
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
        (["-m"], "-m: one sweep measures several levels"),
        (["--multirun"], "--multirun: one sweep measures several levels"),
        (["--rounds", "4"], "--rounds is no option of perfsweep sweep; write measure.rounds=4"),
        (["--rounds=4"], "write measure.rounds=4"),
        (["--rounds", "name=x"], "write measure.rounds=VALUE"),
        (["--rounds", "-x"], "write measure.rounds=VALUE"),
        (["--rounds"], "write measure.rounds=VALUE"),
        (["--dry-run", "true"], "write dry_run=true"),
        (["--measure.rounds", "4"], "write measure.rounds=4"),
        (["--mem_gb=4"], "--mem_gb is no option of perfsweep sweep; write cluster.memory=4G"),
        (["--gres", "gpu:a100:2"], "cluster.gpus=2 cluster.gpu_flag=gres cluster.gpu_type=a100"),
        (["cluster.mem_gb=0.5"], "cluster.mem_gb is what submitit calls it; write cluster.memory=512M"),
        (["+timeout_min=30"], "timeout_min is what submitit calls it; write cluster.time_min=30"),
        (["cluster.gpus_per_node=some"], "write cluster.gpus=VALUE cluster.gpu_flag=VALUE"),
        (["cluster.slurm_time=1-2:30"], "write cluster.time_min=1590"),
        (["cluster.tasks_per_node=2"], "write cluster.ntasks_per_node=2"),
        (["cluster.mail_type=END"], "write cluster.sbatch=[--mail-type=END]"),
        (["cluster.additional_parameters.nice=1"], "leave it out: options of sbatch are a list"),
        (["hydra/launcher=submitit_slurm"], "`perfsweep init --launcher=FILE` makes a site profile"),
        (["hydra.launcher.mem_gb=4"], "perfsweep submits by itself, with cluster=slurm"),
        (["--zzz", "4"], "--zzz is no option of perfsweep sweep; options are written FIELD=VALUE"),
        (["workload=digits", "quick"], "quick: options are written NAME=VALUE; did you mean measure=quick?"),
        (["workload=digits", "probe"], "probe is no FIELD=VALUE; `perfsweep sweep --help` lists the fields"),
        (["probe"], "probe is no FIELD=VALUE; did you mean workload=probe1d? `perfsweep sweep --help`"),
        (
            ["frontier.rounds=2"],
            "frontier.rounds is an option of perfsweep frontier, and not of sweep; choose",
        ),
        (["design=3"], "design is unknown; did you mean sweep.designs? choose from: workload, toggles"),
        (["measures.rounds=3"], "measures is unknown; did you mean measure? choose from"),
        (
            ["measure.round=3"],
            "measure.round is unknown; did you mean rounds? measure has: rounds, iterations",
        ),
        (["measure.zzz=3"], "measure.zzz is unknown; measure has: rounds, iterations"),
        (["axes.a=[1,", "2]"], "a closing ] is missing: write 'axes.a=[1,2]'; the shell splits at spaces"),
        (["axes.a=[1,", "x=2]"], "a closing ] is missing: write 'axes.a=[1,]'"),
        (["axes.a=[1,", "2"], "a closing ] is missing: write 'axes.a=[1,]'"),
        (["axes.a={b:[(1"], "a closing )]} is missing: write 'axes.a={b:[(1)]}'"),
        (["axes.a=[1)"], "axes.a=[1): ) closes nothing; take it away"),
        (["axes.a=1]"], "axes.a=1]: ] closes nothing"),
        (["axes.a='x"], "axes.a='x: the quote ' has no end; add ', or take it away"),
        (
            ["axes.a=1,2"],
            "several values are a list: write 'axes.a=[1,2]'; a text with a comma is \"axes.a='1,2'\"",
        ),
        (["workload.args=a,b"], "several values are a list: write 'workload.args=[a,b]'"),
        (["workload.args=[1,2"], "a closing ] is missing"),
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


def test_a_mapping_has_whatever_keys_and_a_part_only_its_own() -> None:
    spelling.refuse_unknown("sweep", "cluster.env_set.MINE")
    spelling.refuse_unknown("sweep", "sweep.references.fast.amp")
    with pytest.raises(ConfigError, match=r"sweep\.x\.y is unknown; |sweep\.x is unknown; "):
        spelling.refuse_unknown("sweep", "sweep.x.y")


def test_options_are_listed_by_their_whole_names() -> None:
    found = spelling.options("frontier")
    assert {"frontier.rounds", "measure.rounds", "cluster", "runs"} <= set(found)
    assert found["frontier.rounds"].name == "rounds" and "tune.rounds" not in found


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
