"""Question answering files as examples: SQuAD v1.1 and v2, HotpotQA, and flat records."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError

HOTPOT_CHARACTERS = 2000


@dataclass(frozen=True)
class Example:
    """One question with its source text and what counts as a right answer; `answer` is the one trained on."""

    id: str
    source: str
    answer: str
    answers: tuple[str, ...]


def read(path: Path, kind: str = "auto", unanswerable: str = "filter") -> list[Example]:
    """All examples of a file.

    Raises
    ------
    ConfigError
        The file cannot be read, is no JSON, has another format, or an example contradicts itself (its id is
        named).
    """
    if path.suffix == ".parquet":
        return _of_records(_parquet(path), str(path), "flat", unanswerable)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"workload.data={path} cannot be read ({error}); name a readable file or squad, squad2, hotpot"
        ) from error
    return parse(text, str(path), kind, unanswerable, lines=path.suffix == ".jsonl")


def parse(
    text: str, where: str, kind: str = "auto", unanswerable: str = "filter", lines: bool = False
) -> list[Example]:
    """All examples of a file's text; `where` names it in messages.

    Raises
    ------
    ConfigError
        As `read`.
    """
    if lines:
        content = [
            _json(line, where, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    else:
        content = _json(text, where)
    return _of_records(content, where, _format_of(content, where) if kind == "auto" else kind, unanswerable)


def _json(text: str, where: str, first_line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ConfigError(
            f"workload.data={where} is no valid JSON at line {line} column {error.colno} ({error.msg});"
            " correct the file"
        ) from error


def _of_records(content: Any, where: str, kind: str, unanswerable: str) -> list[Example]:
    of_format = {"squad": _squad, "hotpot": _hotpot, "flat": _flat}[kind]
    try:
        found = list(of_format(content, where, unanswerable))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ConfigError(
            f"workload.data={where} is not in format {kind} ({type(error).__name__}: {error}); set"
            " workload.data_format"
        ) from error
    if not found:
        raise ConfigError(
            f"workload.data={where} holds no example that can be used; check workload.unanswerable and the"
            " file"
        )
    return found


def choose(examples: list[Example], n: int | None, seed: int) -> list[Example]:
    """A seeded shuffle, and the first `n` of it.

    Raises
    ------
    ConfigError
        There are fewer than `n`.
    """
    if n is not None and n > len(examples):
        raise ConfigError(
            f"workload.data_n={n} is more than the {len(examples)} examples that the data hold; lower it"
        )
    shuffled = list(examples)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:n]


def _format_of(content: Any, where: str) -> str:
    if isinstance(content, Mapping) and "data" in content:
        return "squad"
    if isinstance(content, list) and content and isinstance(content[0], Mapping):
        return "hotpot" if "supporting_facts" in content[0] else "flat"
    raise ConfigError(
        f"workload.data={where} is neither SQuAD, HotpotQA nor a list of records; set workload.data_format"
    )


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import polars
    except ImportError as error:
        raise ConfigError(
            f"workload.data={path} is Parquet, and polars is not installed; install it or use JSON"
        ) from error
    try:
        return polars.read_parquet(path).to_dicts()
    except (OSError, polars.exceptions.PolarsError, polars.exceptions.PanicException) as error:
        raise ConfigError(
            f"workload.data={path} cannot be read as Parquet ({error}); correct the file"
        ) from error


def _example(name: str, source: str, answers: list[str], where: str, unanswerable: str) -> Iterator[Example]:
    """The example, nothing where it is filtered, an empty answer where the end of sequence is the answer."""
    if not answers:
        if unanswerable == "eos":
            yield Example(name, source, "", ("",))
        return
    if not answers[0].strip():
        raise ConfigError(
            f"workload.data={where}: example {name} has an empty answer; give it text or list no answer"
            " at all"
        )
    try:
        "".join((source, *answers)).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"workload.data={where}: example {name} has half of a surrogate pair ({error.reason}); correct"
            " the file"
        ) from error
    yield Example(name, source, answers[0], tuple(answers))


def _squad(content: Any, where: str, unanswerable: str) -> Iterator[Example]:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            for entry in paragraph["qas"]:
                for answer in entry["answers"]:
                    _check_span(context, answer, str(entry["id"]), where)
                texts = [answer["text"] for answer in entry["answers"]]
                yield from _example(
                    str(entry["id"]), _squad_source(context, entry["question"]), texts, where, unanswerable
                )


def _squad_source(context: str, question: str) -> str:
    return f"Context: {context}\nQuestion: {question}\n"


def _check_span(context: str, answer: Mapping[str, Any], name: str, where: str) -> None:
    start, text = answer["answer_start"], answer["text"]
    if start < 0 or context[start : start + len(text)] != text:
        raise ConfigError(
            f"workload.data={where}: answer_start={start} of example {name} is not where {text!r} is in"
            " its context; correct the file"
        )


def _flat(content: Any, where: str, unanswerable: str) -> Iterator[Example]:
    for number, entry in enumerate(content):
        answers = entry["answers"]
        texts = list(answers["text"]) if isinstance(answers, Mapping) else [str(text) for text in answers]
        name = str(entry.get("id", number))
        yield from _example(
            name, _squad_source(entry["context"], entry["question"]), texts, where, unanswerable
        )


def _hotpot(content: Any, where: str, unanswerable: str) -> Iterator[Example]:
    for entry in content:
        titles = _titles(entry["context"])
        context = " ".join(_excerpt(titles, _facts(entry["supporting_facts"])).split())
        source = f"Question: {entry['question']}\nContext: {context}\n"[:HOTPOT_CHARACTERS]
        name = str(entry.get("_id", entry.get("id")))
        yield from _example(
            name, source, [entry["answer"]] if entry.get("answer") is not None else [], where, unanswerable
        )


def _titles(context: Any) -> dict[str, list[str]]:
    """Sentences by title, from a list of pairs or from the mapping of lists that the flat release has."""
    pairs = (
        zip(context["title"], context["sentences"], strict=True) if isinstance(context, Mapping) else context
    )
    return {title: list(sentences) for title, sentences in pairs}


def _facts(supporting: Any) -> list[tuple[str, int]]:
    if isinstance(supporting, Mapping):
        return list(zip(supporting["title"], supporting["sent_id"], strict=True))
    return [(title, index) for title, index in supporting]


def _excerpt(titles: Mapping[str, list[str]], facts: list[tuple[str, int]]) -> str:
    """Up to six sentences around the supporting facts, then first ones: three titles, four sentences each."""
    chosen: dict[tuple[str, int], str] = {}
    for title, index in facts:
        for near in (index - 1, index, index + 1):
            if 0 <= near < len(titles.get(title, ())) and len(chosen) < 6:
                chosen[title, near] = titles[title][near]
    for title in [title for title in titles if title not in {name for name, _ in facts}][:3]:
        for index, sentence in enumerate(titles[title][:4]):
            chosen[title, index] = sentence
    return " ".join(chosen.values())
