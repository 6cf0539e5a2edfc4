"""The page's section on one's own data is done as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from documented import ROOT, Block, blocks, execute

PAGE = ROOT / "docs" / "spd.md"
FILES = {"decomposition.safetensors", "decomposition.json", "checkpoint.pt", "upstream.pth"}


def sections() -> list[Block]:
    """The blocks of the section."""
    text = PAGE.read_text()
    section = text[text.index("## Use it on your data") : text.index("## Sweeps")]
    return [block for block in blocks(PAGE) if block.text in section]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the section tells to write."""
    for block in sections():
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    return tmp_path


@pytest.mark.workloads
def test_the_program_and_the_commands_train_show_keep_and_go_on(folder) -> None:
    printed = execute(["python", "decompose_network.py"], folder)
    assert "torch.Size([4, 16, 20])" in printed
    lines = [words for block in sections() if block.language == "sh" for words in block.commands]
    for words in lines:
        execute(words, folder)
    assert len(lines) == 2
    for name in ("decomposed", "kept", "longer"):
        assert {file.name for file in (folder / name).iterdir()} == FILES
    kept = torch.load(folder / "decomposed" / "upstream.pth", weights_only=True)
    saved = torch.load(folder / "model_30.pth", weights_only=True)
    assert saved.keys() == kept.keys()
