"""What a user reads is in plain words: `make lint` checks the whole tree, these tests check the linter."""

from __future__ import annotations

from pathlib import Path

import plain_words
import pytest

DIALECT = [
    "Stop the sweep and start it anew.",
    "The figure stands beside the arm.",
    "Whoever reads this, nobody measured it.",
    "The times are held back.",
    "Rows are appended behind the last row.",
    "It shows what of a sweep is done.",
    "Compare each arm with the reference.",
]


@pytest.mark.parametrize("sentence", DIALECT)
def test_a_planted_sentence_is_rejected_on_a_page_and_in_a_message(sentence: str, tmp_path: Path) -> None:
    assert list(plain_words.page("page.md", f"# Page\n\n{sentence}\n"))
    (tmp_path / "module.py").write_text(f"raise ValueError({sentence!r})\n")
    assert list(plain_words.module(tmp_path / "module.py"))
    (tmp_path / "module.py").write_text(f'def _act():\n    """Act.\n\n    {sentence}\n    """\n')
    assert list(plain_words.module(tmp_path / "module.py"))
    (tmp_path / "module.py").write_text("# " + sentence.replace(" ", "\n# ") + "\n")
    assert list(plain_words.module(tmp_path / "module.py"))


def test_plain_words_code_and_keys_pass(tmp_path: Path) -> None:
    text = "# Page\n\nThe stand-in runs again, as `behind` says.\n\n```\nwhoever reads\n```\n"
    assert list(plain_words.page("page.md", text)) == []
    (tmp_path / "module.py").write_text('KEY = "behind"  # the reference arm: those\nONE = 1  # that count\n')
    assert list(plain_words.module(tmp_path / "module.py")) == []


def test_more_than_was_admitted_fails_and_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [("docs/a.md", "`anew`: write again")] * 2
    monkeypatch.setattr(plain_words, "findings", lambda: found)
    monkeypatch.setattr(plain_words, "ADMITTED", tmp_path / "admitted.yaml")
    plain_words.ADMITTED.write_text("docs/a.md: 1\n")
    assert plain_words.main([]) == 1
    assert "docs/a.md: `anew`" in capsys.readouterr().out
    plain_words.ADMITTED.write_text("docs/a.md: 5\n")
    assert plain_words.main(["--shrink"]) == 0
    assert plain_words.ADMITTED.read_text() == "docs/a.md: 2\n"
    assert plain_words.main([]) == 0
