"""The tokenizer and chat template of a local model's folder: its ids, one BOS, one end, or a refusal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data import readers
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.data.tokens import SYSTEM, read_tokenizer

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}<|sep|>\n\n{{ m.content | trim }}<|eot|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant<|sep|>\n\n{% endif %}"
)
QWEN = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|eot|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
DATED = "{% if not date_string %}{{ strftime_now('%d %b %Y') }}{% else %}{{ date_string }}{% endif %}" + QWEN
EXAMPLE = readers.Example("1", "Context: The capital of Ba is Den.\nQuestion: Which?\n", "Den", ("Den",))


def layout(folder: Path, anchor: str = "text") -> Layout:
    return Layout(read_tokenizer(folder), anchor, 4, 8, 200)


@pytest.mark.parametrize("template", [LLAMA, QWEN])
def test_a_scaffold_is_what_the_models_own_library_makes_of_the_chat(
    template, tmp_path, byte_level, write_tokenizer
) -> None:
    special = {"bos_token": "<|bos|>"} if template is LLAMA else {}
    folder = write_tokenizer(tmp_path, byte_level(), template, **special)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": EXAMPLE.source}]
    text = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    expected = theirs(text, add_special_tokens=False).input_ids
    assert layout(folder, "none").scaffold(EXAMPLE.source) == expected
    assert (
        layout(folder).scaffold(EXAMPLE.source)
        == theirs(text + "Answer:", add_special_tokens=False).input_ids
    )


def test_an_answer_continues_the_anchor_as_one_text_would(tmp_path, byte_level, write_tokenizer) -> None:
    made = layout(write_tokenizer(tmp_path, byte_level()))
    assert made.tokenizer.blank_leads and made.separable(EXAMPLE)
    row = made.row(EXAMPLE)
    text = made.tokenizer.decode(row.scaffold[-len(made.anchor_ids) :] + row.answer)
    assert text == "Answer: Den"
    whole = made.tokenizer.encode("Answer: Den")
    assert [*made.anchor_ids, *row.answer] == [*whole, made.tokenizer.end]
    # The mutant keeps the blank in the anchor, as the made tokenizers want it.
    assert made.tokenizer.encode("Answer: ") + made.tokenizer.encode("Den") != whole


def test_the_beginning_stands_once_and_the_end_last(tmp_path, byte_level, write_tokenizer) -> None:
    made = layout(write_tokenizer(tmp_path, byte_level(), LLAMA, bos_token="<|bos|>"))
    bos, end = made.tokenizer.bos, made.tokenizer.end
    row = made.row(EXAMPLE)
    assert bos is not None and made.before == [bos]
    assert row.scaffold.count(bos) == 1 and row.scaffold[0] == bos and bos not in row.answer
    assert row.answer[-1] == end == made.tokenizer.encode("<|eot|>")[0]


def test_special_tokens_in_a_source_stay_text(tmp_path, byte_level, write_tokenizer) -> None:
    made = layout(write_tokenizer(tmp_path, byte_level()))
    tokenizer = made.tokenizer
    assert tokenizer.end not in tokenizer.encode("a <|eot|> b", specials=False)
    assert tokenizer.end in tokenizer.encode("a <|eot|> b")
    assert made.scaffold("<|eot|>").count(tokenizer.end) == made.scaffold("x").count(tokenizer.end)


def test_a_template_that_writes_the_date_writes_the_same_one_every_day(
    tmp_path, byte_level, write_tokenizer
) -> None:
    template = read_tokenizer(write_tokenizer(tmp_path, byte_level(), DATED)).template
    assert template is not None and template.startswith("26 Jul 2024")


def test_other_folders_have_other_keys(tmp_path, byte_level, write_tokenizer) -> None:
    one = layout(write_tokenizer(tmp_path / "one", byte_level()))
    other = layout(write_tokenizer(tmp_path / "other", byte_level(), LLAMA, bos_token="<|bos|>"))
    assert one.key() == layout(tmp_path / "one").key() != other.key()


def test_a_folder_without_a_usable_tokenizer_is_refused(tmp_path, byte_level, write_tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        read_tokenizer(tmp_path)
    write_tokenizer(tmp_path, byte_level(), None)
    with pytest.raises(ConfigError, match=r"set workload\.chat_template"):
        layout(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ConfigError, match=r"tokenizer\.json or tokenizer_config\.json cannot be read"):
        read_tokenizer(tmp_path)


def test_a_tokenizer_that_ends_nothing_is_refused(tmp_path, byte_level, write_tokenizer) -> None:
    write_tokenizer(tmp_path, byte_level())
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "eos_token": None}))
    with pytest.raises(ConfigError, match="names no eos_token"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system here') }}", "no system here"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "leaves out the system"),
        ("{{ messages[0].content }}", "leaves out the system's or the user's"),
        ("{% for m in messages %}", "cannot be used"),
    ],
)
def test_a_template_without_both_messages_is_refused(
    template, message, tmp_path, byte_level, write_tokenizer
) -> None:
    with pytest.raises(ConfigError, match=rf"{message}.*set workload\.chat_template"):
        read_tokenizer(write_tokenizer(tmp_path, byte_level(), template))


@pytest.mark.parametrize(
    ("end", "opened"),
    [
        ("<think>\\n", "<think>"),
        ("[THINK]", "[THINK]"),
        ("<think>\\n\\n</think>\\n\\n<think>", "<think>"),
        ("<think>\\n\\n</think>\\n\\n", None),
    ],
)
def test_an_answer_is_no_part_of_a_thought(end, opened, tmp_path, byte_level, write_tokenizer) -> None:
    folder = write_tokenizer(tmp_path, byte_level(), f"{QWEN}{{{{ '{end}' }}}}")
    if opened is None:
        assert layout(folder).separable(EXAMPLE)
        return
    with pytest.raises(
        ConfigError, match=rf"ends with the opened thought {re.escape(opened)}.*chat_template"
    ):
        layout(folder)


def test_a_template_of_ones_own_replaces_any(
    start, local_model, tmp_path, write_tokenizer, byte_level
) -> None:
    for file in local_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write_tokenizer(tmp_path, byte_level(), "{{ raise_exception('no system here') }}")
    with pytest.raises(ConfigError, match="no system here"):
        start(lm_path=str(tmp_path), tokenizer="auto")
    workload = start(lm_path=str(tmp_path), tokenizer="auto", chat_template="{system} {user} <|sep|>")
    assert workload.arm.layouts[0].tokenizer.template == "{system} {user} <|sep|>"
    with pytest.raises(ConfigError, match="ends with the opened thought <think>"):
        start(lm_path=str(tmp_path), tokenizer="auto", chat_template="{system} {user}<think>")


def test_a_tokenizer_that_puts_blanks_before_pieces_is_refused(tmp_path, byte_level, write_tokenizer) -> None:
    made = byte_level()
    made.normalizer = tokenizers.normalizers.Prepend(" ")
    with pytest.raises(ConfigError, match="a blank before every piece"):
        read_tokenizer(write_tokenizer(tmp_path, made))


# In a training


def test_a_local_model_is_trained_for_with_its_own_ids(start, run, local_model) -> None:
    workload = run(start({"micro_batch": 1}, lm_path=str(local_model), tokenizer="auto"), 1)
    assert workload.arm.layouts[0].tokenizer.key == read_tokenizer(local_model).key
    assert workload.arm.corpus.excluded == 0
    assert len(workload.arm.models) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tokenizer": "bytes"}, r"workload\.tokenizer=bytes cannot be used"),
        (
            {"max_prompt": 250, "max_new": 7},
            "max_prompt=250 and 7 tokens of an answer are beyond the 256 positions",
        ),
        ({"lora_rank": 2, "lora_layers": 3}, "lora_layers=3 cannot be used: it must be at most 2"),
        ({"lm_path": "a,b,c"}, "lm_path=a,b,c cannot be used"),
        ({"lm_path": "a,b", "models": 1}, "models=1 cannot be used: it must be 2, the folders"),
    ],
)
def test_what_a_folder_cannot_be_used_with_is_refused(config, message, start, local_model) -> None:
    with pytest.raises(ConfigError, match=message):
        start(**{"lm_path": str(local_model), "tokenizer": "auto", **config})
