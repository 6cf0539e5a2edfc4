"""Options of the commands, of the files of a sweep and of a site: the page says what is declared."""

from __future__ import annotations

from pathlib import Path

from perfsweep.pipelines.config import option_reference

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_of_options_is_up_to_date() -> None:
    assert PAGE.read_text() == option_reference.page(), (
        "python -m perfsweep.pipelines.config.option_reference > docs/options.md"
    )
