"""What a site lacks: links of the pages to files outside docs/ become the names of these files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write `[text](../file)` as its text where the file exists; a link to nothing stays an error."""
    folder = Path(page.file.abs_src_path).parent
    pages = Path(__file__).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2].partition("#")[0]).resolve()
        outside = target.is_dir() or not target.is_relative_to(pages)
        return link[1] if outside and target.exists() else link[0]

    return re.sub(r"\[([^\]]*)\]\(([^)\s:]+)\)", text, markdown)
