"""`perfsweep tune train.py` from the command to a patch whose effect comes back, and where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from perfsweep.pipelines.cli import main

SCRIPT = """
import torch
from torch import optim  # ✓
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = optim.AdamW(model.parameters(), lr=1e-3)  # fused is faster: see below
while True:
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
    for _ in range(2_000 if optimizer.defaults["fused"] else 80_000):
        pass
"""

SMALL = (
    *("tune.levels.optimizer=[fused]", "tune.toggles=[optimizer]", "tune.rounds=2"),
    *("measure.rounds=3", "measure.servers=1", "measure.repeats=0", "measure.timed_parity=false"),
    *("measure.warmup_max=5", "measure.iterations=6", "measure.evidence_iterations=4"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tune(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["tune", "train.py", *words])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.slow
def test_what_wins_becomes_a_patch_whose_effect_comes_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    status, said = tune(*SMALL), capsys.readouterr()
    lines = said.out.splitlines()
    shown = "train.py:6  AdamW(..., lr=1e-3)  ->  AdamW(..., lr=1e-3, fused=True)"
    assert f"  {shown}" in lines, said
    last = re.fullmatch(
        r"train\.py is ([\d.]+)x as fast \[([\d.]+) \.\. ([\d.]+)\](, which is \w+)?,"
        r" results (in tolerance|identical), [+-]\d+ MB; patch: runs/train-tune/train\.patch",
        lines[-1],
    )
    assert last and float(last[1]) > 2, said
    assert status == (1 if last[4] else 0)
    assert script.read_text() == SCRIPT, "the script stays as it is until --apply"
    assert yaml.safe_load(Path("runs/train-tune/tuned.yaml").read_text()) == {"optimizer": "fused"}
    patch = Path("runs/train-tune/train.patch").read_text()
    assert patch.startswith("--- a/train.py\n+++ b/train.py\n")
    assert "+optimizer = optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # fused is faster" in patch
    assert tune(*SMALL, "--apply") == 0
    assert script.read_text() == SCRIPT.replace("lr=1e-3)", "lr=1e-3, fused=True)")


@pytest.mark.slow
def test_a_script_whose_results_cannot_be_compared_is_to_be_seeded_first(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unseeded = "import os\ntorch.manual_seed(int.from_bytes(os.urandom(4)))"
    (folder / "train.py").write_text(SCRIPT.replace("torch.manual_seed(0)", unseeded))
    assert tune(*SMALL) == 2
    said = capsys.readouterr().err
    assert "train.py does not repeat itself, so results of its arms cannot be compared" in said
    assert "Seed it first, then tune it" in said
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_script_on_which_nothing_can_act_is_told_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = SCRIPT.replace("lr=1e-3)", "lr=1e-3, fused=True)")
    (folder / "train.py").write_text(own)
    assert tune(*SMALL) == 0
    said = capsys.readouterr().out
    assert "train.py: no toggle that is to be tried can act: " in said
    assert "passes fused=True to its optimiser itself" in said
