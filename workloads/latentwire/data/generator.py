"""Invented question answering data in the formats of SQuAD and HotpotQA.

Contexts list facts about invented names; each fact gives one question whose answer is a span of the context.
Pure Python and one `random.Random`: the same kind, number and seed give the same bytes everywhere.
"""

from __future__ import annotations

import json
import random
from typing import Any

_SYLLABLES = (
    *("ba", "den", "far", "gol", "hi", "jor", "ka", "lum", "mir", "nor", "os", "pel", "qui", "ras"),
    *("sol", "tav", "ur", "ven"),
)
_ATTRIBUTES = (
    *("capital", "founder", "main river", "oldest bridge", "patron", "highest hill"),
    *("first mayor", "largest market", "local dish", "river port", "summer festival", "sister city"),
)
_CONNECTIVES = ("of", "the", "upon", "near", "under", "beside")
# Words of an answer. A short one has at most two tokens with the end, a long one up to nine.
_SHORT_SHARE = 0.25
_SHARE_UNANSWERABLE = 0.2


def generate(kind: str, n: int, seed: int) -> str:
    """`n` examples as the text of a SQuAD v1.1 (``squad``), v2 (``squad2``) or HotpotQA (``hotpot``) file."""
    rng = random.Random(seed)
    if kind == "hotpot":
        return json.dumps([_hotpot(rng, number) for number in range(n)])
    articles = []
    number = 0
    while number < n:
        article = _article(rng, number, n, kind == "squad2")
        number += sum(len(paragraph["qas"]) for paragraph in article["paragraphs"])
        articles.append(article)
    return json.dumps({"version": "v2.0" if kind == "squad2" else "1.1", "data": articles})


def _name(rng: random.Random, syllables: int) -> str:
    return "".join(rng.choices(_SYLLABLES, k=syllables)).capitalize()


def _entity(rng: random.Random) -> str:
    return _name(rng, 2 if rng.random() < 0.5 else 3)


def _answer(rng: random.Random) -> str:
    """One word, or a phrase such as ``Denfar of the Golhi``."""
    if rng.random() < _SHORT_SHARE:
        return _name(rng, 1)
    words = [_name(rng, 2)]
    for _ in range(int(rng.random() * 3)):
        words += [rng.choice(_CONNECTIVES), _name(rng, 1)]
    return " ".join(words)


def _facts(rng: random.Random, entity: str, count: int) -> list[tuple[str, str, str]]:
    """(attribute, answer, sentence), one for each of `count` attributes."""
    found = []
    for attribute in rng.sample(_ATTRIBUTES, min(count, len(_ATTRIBUTES))):
        answer = _answer(rng)
        found.append((attribute, answer, f"The {attribute} of {entity} is {answer}."))
    return found


def _article(rng: random.Random, number: int, n: int, unanswerable: bool) -> dict[str, Any]:
    subjects = [_entity(rng) for _ in range(2)]
    sizes = [1 + int(rng.random() * 7) for _ in subjects]
    facts = [
        (subject, *fact)
        for subject, size in zip(subjects, sizes, strict=True)
        for fact in _facts(rng, subject, size)
    ]
    rng.shuffle(facts)
    context = " ".join(sentence for *_, sentence in facts)
    questions = [
        {"id": f"gen-{number + index}", **_entry(rng, fact, context, unanswerable)}
        for index, fact in enumerate(facts[: n - number])
    ]
    return {"title": subjects[0], "paragraphs": [{"context": context, "qas": questions}]}


def _entry(
    rng: random.Random, fact: tuple[str, str, str, str], context: str, unanswerable: bool
) -> dict[str, Any]:
    """A question about a fact; some ask about an entity that the context does not know."""
    subject, attribute, answer, sentence = fact
    if unanswerable and rng.random() < _SHARE_UNANSWERABLE:
        question = _question(attribute, _entity(rng) + "a")
        return {"question": question, "answers": [], "is_impossible": True}
    start = context.index(sentence) + sentence.rindex(answer)
    return {
        "question": _question(attribute, subject),
        "answers": [{"text": answer, "answer_start": start}],
        **({"is_impossible": False} if unanswerable else {}),
    }


def _question(attribute: str, subject: str) -> str:
    return f"What is the {attribute} of {subject}?"


def _hotpot(rng: random.Random, number: int) -> dict[str, Any]:
    """A question over two titles, hidden among eight others."""
    first, second = _entity(rng), _entity(rng) + "en"
    hop, asked = rng.sample(_ATTRIBUTES, 2)
    answer = _answer(rng)
    titles = [
        (first, [f"{first} is a town.", f"The {hop} of {first} is {second}."]),
        (second, [f"The {asked} of {second} is {answer}.", f"{second} is well known."]),
    ]
    for _ in range(8):
        other = _entity(rng) + "us"
        titles.append((other, [sentence for *_, sentence in _facts(rng, other, 2)]))
    rng.shuffle(titles)
    return {
        "_id": f"gen-{number}",
        "question": f"What is the {asked} of the {hop} of {first}?",
        "answer": answer,
        "supporting_facts": [[first, 1], [second, 0]],
        "context": [[title, sentences] for title, sentences in titles],
        "type": "bridge",
        "level": "easy",
    }
