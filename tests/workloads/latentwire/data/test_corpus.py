"""Examples that are trained on and held out, and rows that are too long or of no template."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from bare_arms import bare

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.corpus import Corpus, layouts_for, load_examples
from perfsweep.workloads.latentwire.presets import LMS, LMConfig

SHAPE = LMS["nano-l"]


def config(**changed: Any) -> LatentWireConfig:
    return LatentWireConfig(
        **{"preset": "test", "tokenizer": "bytes", "data_n": 11, "held_out": 3, **changed}
    )


def corpus(folder: Path, level: str = "pre", **changed: Any) -> Corpus:
    made = config(**changed)
    arm = bare({"tokenise": level})
    arm.context = dataclasses.replace(arm.context, cache_dir=folder)
    arm.layouts = layouts_for(made, [SHAPE, LMS["nano-q"]], folder)
    arm.corpus = Corpus(made, arm.layouts)
    arm.prepare_tokens()
    return arm.corpus


def test_the_last_examples_are_held_out_and_sources_cut(tmp_path: Path) -> None:
    made = corpus(tmp_path, max_bytes=20)
    assert (len(made), len(made.held_out), made.excluded) == (11, 3, 0)
    assert made.examples + made.held_out == load_examples(config(max_bytes=20))
    assert all(len(source) == 20 for source in made.sources)
    assert made.sources[0] == made.examples[0].source.encode()[:20]


def test_a_file_has_as_many_examples_as_asked_for_beside_those_held_out(tmp_path: Path) -> None:
    record = {"context": "c", "question": "q"}
    lines = [{**record, "id": str(i), "answers": {"text": [f"a{i}"]}} for i in range(9)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    file = str(tmp_path / "d.jsonl")
    assert len(load_examples(config(data=file, data_n=4))) == 7
    assert len(load_examples(config(data=file, data_n=None))) == 9
    with pytest.raises(ConfigError, match="data_n=10 is more than the 9 examples"):
        load_examples(config(data=file, data_n=7))
    assert len(corpus(tmp_path, data=file, data_n=None, held_out=8)) == 1
    with pytest.raises(ConfigError, match="held_out=9 leaves nothing to train on of 9 usable examples"):
        corpus(tmp_path, data=file, data_n=None, held_out=9)


@pytest.mark.parametrize(
    ("template", "fits"), [(None, True), ("{system} {user}", True), ("{user}", False), ("{system}", False)]
)
def test_a_template_has_both_messages_in_it(template: str | None, fits: bool, tmp_path: Path) -> None:
    made = config(chat_template=template)
    if fits:
        (layout,) = layouts_for(made, [SHAPE], tmp_path)
        assert template is None or layout.tokenizer.template == template
        return
    with pytest.raises(ConfigError, match=r"chat_template must have \{system\} and \{user\} in it; add them"):
        layouts_for(made, [SHAPE], tmp_path)


def short(positions: int) -> LMConfig:
    return dataclasses.replace(SHAPE, max_pos=positions)


def test_prompts_and_answers_fit_into_a_models_positions(tmp_path: Path) -> None:
    made = config(max_prompt=1000, max_new=20)
    layouts_for(made, [short(1020)], tmp_path)
    sentence = "max_prompt=1000 and 20 tokens of an answer are beyond the 1019 positions of max_position"
    with pytest.raises(ConfigError, match=sentence):
        layouts_for(made, [short(1019)], tmp_path)


@pytest.mark.parametrize(("deep", "positions"), [(False, 1 + 4 + 8 + 5), (True, 1 + 4 + 8 + 5 + 4)])
def test_a_students_row_fits_too(deep: bool, positions: int, tmp_path: Path) -> None:
    made = config(max_prompt=1, max_new=1, deep_prefix=deep)
    layouts_for(made, [short(positions)], tmp_path)
    with pytest.raises(ConfigError, match=f"deep_prefix={str(deep).lower()} take {positions} positions"):
        layouts_for(made, [short(positions - 1)], tmp_path)
