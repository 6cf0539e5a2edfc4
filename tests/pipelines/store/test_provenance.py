"""sweep.yaml keeps what was typed and changed, letter for letter."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest
from git_repository import git
from omegaconf import OmegaConf

from perfsweep.pipelines.store import provenance


@pytest.mark.parametrize("text", ["+ a ${(x} b", r"\\${a:b"])
def test_a_diff_may_hold_what_looks_like_an_interpolation(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_git", lambda *arguments: text)
    file = tmp_path / "sweep.yaml"
    file.write_text(provenance.sweep_yaml(OmegaConf.create({"runs": "runs"})))
    assert OmegaConf.load(file).provenance.git_diff == text
    assert provenance.read_provenance(file, []).commit.endswith("with uncommitted changes")


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("cluster.env_set.TOKEN=hidden=1", "cluster.env_set.TOKEN=***"),
        ("cluster.env_set={TOKEN: a,\n B: hidden}", "cluster.env_set=***"),
    ],
)
def test_values_of_env_set_stand_nowhere_and_their_names_do(
    typed: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/bin/perfsweep", "sweep", typed, "measure.rounds=2"])
    monkeypatch.setattr(provenance, "_git", lambda *arguments: None)
    cfg = OmegaConf.create({"cluster": {"env_set": {"TOKEN": "hidden"}, "nodes": 1}})
    text = provenance.sweep_yaml(cfg)
    assert "hidden" not in text
    kept = OmegaConf.create(text)
    assert kept.configuration.cluster == {"env_set": {"TOKEN": "***"}, "nodes": 1}
    assert kept.provenance.command == f"perfsweep sweep '{named}' measure.rounds=2"
    assert cfg.cluster.env_set.TOKEN == "hidden"  # the jobs still get it


def test_the_commit_is_that_of_the_sources_where_they_are_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    asked = ("rev-parse", "--show-toplevel")
    assert provenance._git(*asked) is None
    git(tmp_path, "init", "-q")
    assert provenance._git(*asked) == str(tmp_path.resolve())


def test_what_a_table_was_measured_with_is_said_in_words(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    found: dict = {"command": "perfsweep sweep", "python": "3.11.7", "git_commit": "abc", "git_diff": ""}
    found["versions"] = {"torch": "2.13.0", "wandb": "1"}
    file.write_text(OmegaConf.to_yaml({"provenance": found}))
    node = {"cpu_model": "EPYC", "cpu_features": ["avx2", "sve"], "cores": 1, "host": "a", "load": 1.0}
    gpus = [{"name": "H100"}, {}]
    read = provenance.read_provenance(file, [{**node, "gpus": gpus}, {**node, "host": "b", "load": 2.0}])
    assert read == provenance.Provenance(
        "perfsweep sweep",
        "abc",
        "Python 3.11.7, torch 2.13.0, wandb 1",
        "EPYC (avx2, sve), 1 core; GPU: H100, unknown",
        ("host: a; b",),
    )
    bare = provenance.read_provenance(tmp_path / "none.yaml", [{"host": str(n)} for n in range(5)])
    assert (bare.command, bare.commit, bare.versions) == ("unknown", "unknown", "Python unknown")
    assert bare.machine == "unknown, ? cores; GPU: none"
    assert bare.differing == ("host: 0; 1; 2; 3 ...",)
    assert provenance.read_provenance(file, []).machine == "unknown"
    settings = [{"settings": {"OMP_NUM_THREADS": "1", "TZ": zone}, "slurm": {"job": zone}} for zone in "ab"]
    apart = provenance.read_provenance(file, [*settings, {"settings": {"OMP_NUM_THREADS": "1"}}])
    assert apart.differing == ("settings.TZ: a; b; not set",)


def test_of_a_damaged_file_is_known_what_can_be_read(tmp_path: Path) -> None:
    facts = {"command": "perfsweep sweep", "versions": {"torch": "2.13.0"}, "git_commit": "c0de"}
    whole = OmegaConf.to_yaml(
        OmegaConf.create({"configuration": {"a": [1, {"b": "c"}]}, "provenance": facts})
    )
    file = tmp_path / "sweep.yaml"
    for end in range(0, len(whole), 11):
        file.write_text(whole[:end])
        found = provenance.read_provenance(file, [])
        assert found.command and found.commit and found.versions.startswith("Python ")
    file.write_bytes(b"\xff\xfe\x00a: b")
    assert provenance.read_provenance(file, []).command == "unknown"
    file.unlink()
    os.mkfifo(file)
    assert provenance.read_provenance(file, []).command == "unknown"


def test_a_file_whose_aliases_expand_without_end_is_not_expanded(tmp_path: Path) -> None:
    names = "abcdefghijkl"
    lines = ["a: &a [x]", *(f"{new}: &{new} [{f'*{old},' * 9}]" for old, new in itertools.pairwise(names))]
    (tmp_path / "sweep.yaml").write_text("\n".join(lines))
    assert provenance.read_provenance(tmp_path / "sweep.yaml", []).command == "unknown"
