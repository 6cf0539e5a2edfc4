"""Options of the commands: what the page says of each is what is declared."""

from __future__ import annotations

from declared import OPTIONS

from perfsweep.pipelines.config import option_reference


def test_the_page_of_options_is_up_to_date() -> None:
    assert OPTIONS.read_text() == option_reference.page(), (
        "python -m perfsweep.pipelines.config.option_reference > docs/options.md"
    )
