"""sweep.yaml keeps what was typed and changed, letter for letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipelines.store import provenance


@pytest.mark.parametrize("text", ["+ a ${(x} b", r"+ \${ c", r"\\${a:b", "${a}", "$(x) $HOME"])
def test_a_diff_may_hold_what_looks_like_an_interpolation(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_git", lambda *arguments: text)
    file = tmp_path / "sweep.yaml"
    file.write_text(provenance.sweep_yaml(OmegaConf.create({"runs": "runs"})))
    assert OmegaConf.load(file).provenance.git_diff == text
    assert provenance.read_provenance(file, []).commit.endswith("with uncommitted changes")
