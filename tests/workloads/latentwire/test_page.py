"""The page's section on one's own data, executed as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documented import ROOT, Block, blocks, execute

pytest.importorskip("transformers")
pytestmark = pytest.mark.workloads

PAGE = ROOT / "docs" / "latentwire.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## Use it on your data")[1].split("\n## ")[0]

SMALL = (
    *("toggles.effective_batch=2", "toggles.micro_batch=2", "workload.max_prompt=128"),
    *("measure.iterations=2", "measure.warmup_max=5", "measure.threads=1"),
)
"""Two steps of two examples, and prompts that fit the small model."""


def block(kind: str, within: str = "") -> str:
    """The section's first block of a language that has `within` in it."""
    return next(
        one.text
        for one in blocks(PAGE)
        if one.language == kind and within in one.text and one.text in SECTION
    )


def options(line: str) -> dict[str, str]:
    """The fields of the workload that a line of the page sets."""
    return dict(
        word.removeprefix("workload.").split("=", 1) for word in line.split() if word.startswith("workload.")
    )


@pytest.fixture
def here(tmp_path, monkeypatch, local_model) -> Path:
    """A folder with the page's file of questions, and the model that it calls MODEL."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "MODEL").symlink_to(local_model)
    line = block("json").strip()
    lines = [line.replace('"1"', f'"{number}"').replace("Den", f"Den {number}") for number in range(12)]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_both_trainings_and_the_code_do_what_the_page_says(here) -> None:
    lines = [words for words in Block("", block("", "keep=kept")).commands if words[0] == "perfsweep"]
    assert len(lines) == 2
    for words in lines:
        assert "kept in" in execute(words, here, *SMALL)
    assert (here / "more" / "losses.csv").read_text().splitlines()[1].startswith("3,")
    for name in re.findall(r"^\| `(\S+?)`", SECTION.split("\n### ")[0], re.MULTILINE):
        assert name == "lora-N/" or (here / "more" / name).exists(), name
    assert execute(["python", "-c", block("python")], here)


def test_the_pages_commands_name_fields_that_exist() -> None:
    from perfsweep.workloads.latentwire.config import LatentWireConfig

    for line in re.findall(r"^perfsweep run workload=latentwire .*$", PAGE.read_text(), re.MULTILINE):
        assert set(options(line)) <= set(LatentWireConfig.__dataclass_fields__), line
