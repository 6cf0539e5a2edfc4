"""Plain words in pages, messages, help, docstrings and comments.

`python -m plain_words` names each place that the rules of CONTRIBUTING.md forbid. A folder of code or a page
may have as many as `plain_words.yaml` admits: `--shrink` lowers these numbers, and nothing raises them.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
ADMITTED = Path(__file__).with_suffix(".yaml")

PLAIN = {
    r"\b(the|every|each|first|same|its) references?\b(?! (of|implementation|arms?)\b)": "baseline",
    r"\bheld back\b(?!`)": "too noisy",
    r"\banew\b": "again",
    r"\bbehind\b": "after",
    r"\bbesides?\b": "next to, in addition to",
    r"\b(stands?|stood)\b(?![-`])": "is, appears",
    r"\b(is|are|was|were) over\b(?! (the|a|an|\d))": "has ended",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bwhat of\b": "the thing itself",
    r"\b(that|those) which\b|\bthose that\b": "the thing itself",
    r"\b(whoever|nobody|somebody|everybody|a person)\b": "you, a user, no process",
    r"\bone's\b|\bone (can|must|may|should|would|wants|needs|takes)\b": "you",
}
"""What is not written, and what is in its place."""

GENERATED = ("claims.md", "json.md", "library.md", "options.md", "training.md")
"""Pages that are written from the code, whose texts are looked at there."""

SENTENCE, PAGE, README = 20, 1200, 120
"""Words of a sentence, words of a page without its programs, lines of the README."""

COMMENTS = (tokenize.COMMENT, tokenize.NL)
CODE = ("src/perfsweep", "pipelines", "slurm", "workloads")


def pages(root: Path = ROOT) -> list[Path]:
    """Pages that are written by hand."""
    texts = [path for path in (root / "docs").glob("*.md") if path.name not in GENERATED]
    top = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return sorted([*top, *texts, *(root / "docs/decisions").glob("*.md"), *(root / "examples").glob("*.md")])


def words(text: str) -> Iterator[str]:
    """What a text says in other than plain words."""
    for pattern, plain in PLAIN.items():
        for found in re.finditer(pattern, " ".join(text.split()), re.IGNORECASE):
            yield f"`{found[0]}`: write {plain}"


def page(name: str, text: str) -> Iterator[str]:
    """What breaks the rules on a page: its words, its sentences, its length."""
    prose = re.sub(r"^```.*?^```$|`[^`]*`", "``", text, flags=re.MULTILINE | re.DOTALL)
    yield from words(prose)
    if name == "CHANGELOG.md":
        return
    yield from (f"{len(one.split())} words, at most {SENTENCE}: {one[:60]}" for one in sentences(prose))
    if name == "README.md" and text.count("\n") > README:
        yield f"{text.count(chr(10))} lines, at most {README}"
    length = len(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    if length > PAGE:
        yield f"{length} words, at most {PAGE}"


def sentences(prose: str) -> Iterator[str]:
    """Sentences of paragraphs and lists that are too long."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        if not block.lstrip().startswith(("|", "#", "![", "<!--", "Mytkowicz")):
            text = re.sub(r"\]\([^)]*\)", "]", " ".join(block.split()))
            yield from (one for one in re.split(r"(?<=[.?!:;])\s+", text) if len(one.split()) > SENTENCE)


def module(path: Path) -> Iterator[str]:
    """What breaks the rules in the messages, docstrings and comments of a module."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from words(node.value if " " in node.value.strip() else "")
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    lines = (one.string.replace("#", "") if one.type in COMMENTS else "|" for one in tokens)
    yield from words("".join(lines))


def findings(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Each finding with the page or the folder that answers for it."""
    for path in pages(root):
        yield from ((str(path.relative_to(root)), one) for one in page(path.name, path.read_text()))
    for top in CODE:
        for path in sorted((root / top).rglob("*.py")):
            where = str(path.relative_to(root))
            yield from ((str(Path(*Path(where).parts[:2])), f"{where}: {one}") for one in module(path))
    for path in sorted((root / "conf").rglob("*.yaml")):
        yield from (("conf", f"{path.relative_to(root)}: {one}") for one in words(path.read_text()))


def main(arguments: list[str]) -> int:
    """Print what is more than admitted; 1 where anything is."""
    admitted: dict[str, int] = yaml.safe_load(ADMITTED.read_text()) or {}
    found = list(findings())
    counts = Counter(where for where, _ in found)
    if "--shrink" in arguments:
        left = {where: min(number, counts[where]) for where, number in admitted.items() if counts[where]}
        ADMITTED.write_text(yaml.safe_dump(left))
    more = [f"{where}: {one}" for where, one in found if counts[where] > admitted.get(where, 0)]
    print("\n".join(more), end="\n" if more else "")
    return bool(more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
