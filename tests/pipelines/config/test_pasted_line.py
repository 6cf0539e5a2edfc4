"""Lines with which trainings are started, read as a script with arguments, processes and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config.pasted_line import PastedLine, read, starts_a_script
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "pkg/train.py", "tool/__main__.py", "src/deep/er.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    console = tmp_path / "bin/my-train"
    console.write_text("#!/usr/bin/python3\n")
    console.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


LINES = {
    "train.py --lr=1": PastedLine("train.py", ("--lr=1",)),
    "python train.py -m 3": PastedLine("train.py", ("-m", "3")),
    "/opt/bin/python3.11 -u -W ignore -X dev train.py a": PastedLine("train.py", ("a",)),
    "python -mtool": PastedLine("tool/__main__.py", (), "tool"),
    "python -m deep.er": PastedLine("src/deep/er.py", (), "deep.er"),
    "-m pkg.train --lr 1": PastedLine("pkg/train.py", ("--lr", "1"), "pkg.train"),
    "uv run python train.py": PastedLine("train.py"),
    "A=1 B=x=y time python train.py": PastedLine("train.py", variables={"A": "1", "B": "x=y"}),
    "torchrun --nproc_per_node=4 train.py --n 2": PastedLine("train.py", ("--n", "2"), ranks=4),
    "torchrun --nnodes 2 --nproc-per-node 4 train.py": PastedLine("train.py", ranks=8),
    "torchrun train.py": PastedLine("train.py"),
    "torchrun --nproc_per_node=2 -m pkg.train a": PastedLine("pkg/train.py", ("a",), "pkg.train", 2),
    "python -m torch.distributed.run --nproc_per_node=2 train.py": PastedLine("train.py", ranks=2),
    "accelerate launch --mixed_precision bf16 --num_processes 2 train.py a": PastedLine(
        "train.py", ("a",), ranks=2, variables={"ACCELERATE_MIXED_PRECISION": "bf16"}
    ),
    "deepspeed --num_gpus=2 train.py": PastedLine("train.py", ranks=2),
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_read_as_its_shell_would_start_it(line: str) -> None:
    assert starts_a_script(line.split())
    assert read(line.split()) == LINES[line]


def test_a_console_script_is_found_on_the_path(folder: Path) -> None:
    assert read(["my-train", "--lr=1"]) == PastedLine(str(folder / "bin/my-train"), ("--lr=1",))
    assert not starts_a_script(["my-train"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("python -c pass", "starts no script that is a file"),
        ("python", "nothing follows it"),
        ("python -m absent.train", r"neither absent/train.py nor absent/train/__main__.py"),
        ("torchrun --nproc_per_node=2", "the launcher starts no script"),
        ("torchrun --nproc_per_node=gpu train.py", "--nproc_per_node=gpu: give a number"),
    ],
)
def test_a_line_that_starts_no_file_is_refused_with_what_to_do(line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read(line.split())
