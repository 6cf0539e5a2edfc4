"""Generated data, readers of SQuAD, HotpotQA and flat files, and what they refuse in a sentence."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data import generator, readers
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.data.tokens import A, B, bpe_available, bpe_tokenizer, byte_tokenizer
from perfsweep.workloads.latentwire.presets import KINDS


def squad(*questions: dict, context: str = "The capital of Ba is Den Far.") -> str:
    return json.dumps(
        {
            "version": "1.1",
            "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}],
        }
    )


def question(answer: str = "Den Far", start: int = 21, name: str = "q1") -> dict:
    return {"id": name, "question": "Which?", "answers": [{"text": answer, "answer_start": start}]}


DIGESTS = {"squad": "2a793453", "squad2": "b5714bd7", "hotpot": "372f6431"}
"""Of forty examples: results of sweeps are of these data."""


def test_a_seed_decides_every_byte_and_the_same_in_every_version() -> None:
    made = {kind: generator.generate(kind, 40, 1) for kind in KINDS}
    assert {kind: hashlib.sha256(text.encode()).hexdigest()[:8] for kind, text in made.items()} == DIGESTS
    assert all(generator.generate(kind, 40, 2) != text for kind, text in made.items())


@given(n=st.integers(1, 60), seed=st.integers(0, 2**32), kind=st.sampled_from(["squad", "hotpot"]))
def test_as_many_examples_as_asked_for_can_be_read_back(n, seed, kind) -> None:
    examples = readers.parse(generator.generate(kind, n, seed), kind)
    assert len(examples) == n
    assert len({example.id for example in examples}) == n
    assert all(example.answer in example.source for example in examples)


def test_a_fifth_of_the_questions_of_version_two_has_no_answer() -> None:
    text = generator.generate("squad2", 1000, 0)
    answered = readers.parse(text, "x")
    assert 740 <= len(answered) <= 860
    everything = readers.parse(text, "x", unanswerable="eos")
    assert len(everything) == 1000
    assert sum(example.answer == "" for example in everything) == 1000 - len(answered)
    questions = [
        question
        for article in json.loads(text)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    assert all(question["is_impossible"] is not bool(question["answers"]) for question in questions)


def test_source_and_answer_come_from_a_squad_file() -> None:
    (example,) = readers.parse(squad(question()), "x")
    assert example.source == "Context: The capital of Ba is Den Far.\nQuestion: Which?\n"
    assert (example.answer, example.answers) == ("Den Far", ("Den Far",))


UNEVEN = {
    "question": "?",
    "answer": "x",
    "supporting_facts": [],
    "context": {"title": ["a", "b"], "sentences": [["s"]]},
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *[
            (squad(question(start=start)), rf"answer_start={start} of example q1")
            for start in (22, 500, 21 - len("The capital of Ba is Den Far."))
        ],
        (
            squad(question(), context="The capital of Ba is Den Far. \ud800"),
            "q1 has half of a surrogate pair",
        ),
        (squad({"id": "q2", "question": "Which?", "answers": []}), "holds no example"),
        (json.dumps([UNEVEN]), "is not in format hotpot"),
        ('[{"question": "?"}]', "is not in format flat"),
        *[(content, "data_format") for content in ('{"a": 1}', "[1, 2]", "[]")],
    ],
)
def test_data_that_cannot_be_meant_are_refused(content, message) -> None:
    with pytest.raises(ConfigError, match=message):
        readers.parse(content, "file.json")


@pytest.mark.parametrize("text", ["", '{"data": ['])
def test_broken_json_is_refused_with_its_place(text, tmp_path) -> None:
    file = tmp_path / "broken.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.json is no valid JSON at line 1"):
        readers.read(file)


def test_a_broken_line_of_many_is_named_by_its_own_number(tmp_path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"a": "\u2028"}\n\n{"context": }\n')
    with pytest.raises(ConfigError, match="at line 3 column 13"):
        readers.read(file)


def test_a_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.json cannot be read"):
        readers.read(tmp_path / "missing.json")


def test_an_empty_answer_is_an_error_and_none_is_unanswerable() -> None:
    with pytest.raises(ConfigError, match="example q1 has an empty answer"):
        readers.parse(squad(question(answer="", start=0)), "x")
    unanswered = {"id": "q2", "question": "Which?", "answers": []}
    assert len(readers.parse(squad(question(), unanswered), "x")) == 1
    assert readers.parse(squad(question(), unanswered), "x", unanswerable="eos")[1].answers == ("",)


def test_flat_records_are_read_from_lines_and_lists(tmp_path) -> None:
    record = {"id": "a", "context": "c", "question": "q", "answers": {"text": ["x", "y"]}}
    lines = tmp_path / "flat.jsonl"
    lines.write_text("\n".join(json.dumps({**record, "id": str(i)}) for i in range(3)))
    assert [example.id for example in readers.read(lines)] == ["0", "1", "2"]
    assert readers.parse(json.dumps([record]), "x")[0].answers == ("x", "y")


def test_flat_records_are_read_from_parquet(tmp_path) -> None:
    import polars as pl

    file = tmp_path / "flat.parquet"
    pl.DataFrame([{"context": "c", "question": "q", "answers": {"text": ["x"]}}]).write_parquet(file)
    assert readers.read(file)[0].answer == "x"


def test_parquet_on_which_polars_panics_is_refused_in_a_sentence(tmp_path) -> None:
    """A panic is no `Exception`: these bytes cause one in the locked version of polars."""
    import polars as pl

    file = tmp_path / "damaged.parquet"
    answers = [{"text": [f"{i}"], "answer_start": [6]} for i in range(20)]
    pl.DataFrame(
        [
            {"id": str(i), "question": f"what {i}?", "context": f"it is {i}", "answers": answer}
            for i, answer in enumerate(answers)
        ]
    ).write_parquet(file)
    content, chance = bytearray(file.read_bytes()), random.Random(12)
    chance.random()
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^workload\.data=.*damaged.parquet cannot be read as Parquet"):
        readers.read(file)


HOTPOT = {
    "_id": "h",
    "question": "Q?",
    "answer": "yes",
    "supporting_facts": [["A", 1]],
    "context": [
        ["A", ["a0.", "a1.", "a2.", "a3."]],
        ["B", ["b0."]],
        ["C", ["c0."]],
        ["D", ["d0."]],
        ["E", ["e0."]],
    ],
}


def test_hotpot_keeps_neighbours_of_facts_and_three_other_titles() -> None:
    (example,) = readers.parse(json.dumps([HOTPOT]), "x")
    assert example.source == "Question: Q?\nContext: a0. a1. a2. b0. c0. d0.\n"


def test_both_shapes_of_hotpot_files_give_the_same() -> None:
    columns = {
        **HOTPOT,
        "supporting_facts": {"title": ["A"], "sent_id": [1]},
        "context": {
            "title": [t for t, _ in HOTPOT["context"]],
            "sentences": [s for _, s in HOTPOT["context"]],
        },
    }
    assert readers.parse(json.dumps([columns]), "x") == readers.parse(json.dumps([HOTPOT]), "x")


def test_hotpot_is_cut_at_two_thousand_characters() -> None:
    long = {**HOTPOT, "context": [["A", ["word " * 300] * 4]]}
    assert len(readers.parse(json.dumps([long]), "x")[0].source) == 2000


def test_more_examples_than_there_are_cannot_be_chosen() -> None:
    examples = readers.parse(generator.generate("squad", 5, 0), "x")
    with pytest.raises(ConfigError, match="data_n=6 is more than the 5"):
        readers.choose(examples, 6, 0)
    assert sorted(e.id for e in readers.choose(examples, None, 1)) == sorted(e.id for e in examples)


# Tokenizers and layout


def layouts(cache_dir, anchor="text", **more):
    made = [byte_tokenizer(A), byte_tokenizer(B)]
    if bpe_available():
        made += [bpe_tokenizer(A, 512, cache_dir), bpe_tokenizer(B, 512, cache_dir)]
    return [
        Layout(tokenizer, anchor, **{"latents": 4, "answer_tokens": 6, "max_prompt": 400, **more})
        for tokenizer in made
    ]


@pytest.mark.parametrize("anchor", ["text", "chat", "none"])
def test_a_prompt_with_its_answer_begins_with_the_prompt(cache_dir, anchor) -> None:
    for layout in layouts(cache_dir, anchor):
        for example in readers.parse(generator.generate("squad", 10, 1), "x"):
            assert layout.separable(example)


@pytest.mark.skipif(not bpe_available(), reason="needs tokenizers")
@given(text=st.text(alphabet="abc DEN.\né", max_size=60))
def test_pieces_of_words_can_be_decoded(cache_dir, text) -> None:
    tokenizer = bpe_tokenizer(A, 512, cache_dir)
    assert tokenizer.decode(tokenizer.encode(text, specials=False)) == text
    assert (
        max(tokenizer.encode(text, specials=False), default=0)
        < tokenizer.first_special
        < tokenizer.vocabulary
        <= 512
    )
