"""Examples as bytes and ids, tokenised in every step, once, or once for all runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import cache, generator, readers
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.data.row_layout import Layout, Row
from perfsweep.workloads.latentwire.data.tokens import (
    FolderTokenizer,
    Tokenizer,
    read_tokenizer,
    tokenizer_for,
)
from perfsweep.workloads.latentwire.presets import KINDS, LMConfig


def load_examples(config: LatentWireConfig) -> list[Example]:
    """The examples of a configuration, shuffled and cut.

    Raises
    ------
    ConfigError
        The data cannot be used.
    """
    if config.data in KINDS:
        n = config.data_n or config.sizes.examples
        spare = n + config.held_out
        more = spare * 2 if config.data == "squad2" else spare
        text = generator.generate(config.data, more, config.data_seed)
        found = readers.parse(text, config.data, unanswerable=config.unanswerable)
        return readers.choose(found, spare, config.data_seed)
    found = readers.read(Path(config.data), config.data_format, config.unanswerable)
    wanted = None if config.data_n is None else config.data_n + config.held_out
    return readers.choose(found, wanted, config.data_seed)


def layouts_for(config: LatentWireConfig, lms: Sequence[LMConfig], cache_dir: Path) -> list[Layout]:
    """One layout for each model.

    Raises
    ------
    ConfigError
        A model's tokenizer or template cannot be used, or its rows are too long for it.
    """
    return [_layout_for(config, number, lm, cache_dir) for number, lm in enumerate(lms)]


def _layout_for(config: LatentWireConfig, number: int, lm: LMConfig, cache_dir: Path) -> Layout:
    tokenizer = _tokenizer_for(config, number, lm, cache_dir)
    if config.chat_template is not None:
        tokenizer = _with_template(tokenizer, config.chat_template or None)
    sizes = config.sizes
    answer = max(sizes.early_tokens, sizes.answer_tokens, config.max_new)
    if config.max_prompt + answer > lm.max_pos:
        raise ConfigError(
            f"workload.max_prompt={config.max_prompt} and {answer} tokens of an answer are beyond the"
            f" {lm.max_pos} positions of max_position_embeddings of model {number}; lower it"
        )
    layout = Layout(tokenizer, config.anchor, sizes.latents, sizes.answer_tokens, config.max_prompt)
    _refuse_long_rows(config, layout.prefix, lm.max_pos)
    return layout


def _tokenizer_for(
    config: LatentWireConfig, number: int, lm: LMConfig, cache_dir: Path
) -> Tokenizer | FolderTokenizer:
    """The folder's own tokenizer, or one that is made for a model with random weights."""
    if config.lm_path is None:
        return tokenizer_for(config.tokenizer, number, lm.vocab_size, cache_dir)
    folder = config.lm_folders[number]
    tokenizer = read_tokenizer(folder, replaced=config.chat_template is not None)
    if tokenizer.vocabulary > lm.vocab_size:
        raise ConfigError(
            f"workload.lm_path={folder}: tokenizer.json has ids up to {tokenizer.vocabulary - 1}, and"
            f" config.json's vocab_size is {lm.vocab_size}; use files that belong together"
        )
    return tokenizer


def _refuse_long_rows(config: LatentWireConfig, prefix: int, most: int) -> None:
    sizes = config.sizes
    positions = prefix + sizes.answer_tokens - 1 + sizes.latents * config.deep_prefix
    if positions > most:
        raise ConfigError(
            f"workload.preset={config.preset} and workload.deep_prefix={str(config.deep_prefix).lower()}"
            f" take {positions} positions, and the model has {most}; use a smaller preset, or a"
            " model of a longer context"
        )


def _with_template(
    tokenizer: Tokenizer | FolderTokenizer, template: str | None
) -> Tokenizer | FolderTokenizer:
    if template is not None and ("{user}" not in template or "{system}" not in template):
        raise ConfigError("workload.chat_template must have {system} and {user} in it; add them")
    return tokenizer.with_template(template)


class Corpus:
    """Examples to train on and held-out ones, with their ids for every model.

    Ids are made again whenever they are asked for, unless they are `stored`. Examples whose answer would be
    tokenised differently after the scaffold are left out and counted in `excluded`.
    """

    def __init__(self, config: LatentWireConfig, layouts: Sequence[Layout]) -> None:
        self.layouts = list(layouts)
        self.counts = Counter[str]()
        self.max_bytes = config.sizes.max_bytes
        found = load_examples(config)
        usable = [example for example in found if all(layout.separable(example) for layout in layouts)]
        self.excluded = len(found) - len(usable)
        if len(usable) <= config.held_out:
            raise ConfigError(
                f"workload.held_out={config.held_out} leaves nothing to train on of {len(usable)} usable"
                " examples; lower it"
            )
        self.examples = usable[: -config.held_out]
        self.held_out = usable[-config.held_out :]
        self.sources = [example.source.encode("utf-8")[: self.max_bytes] for example in self.examples]
        self.stored: list[list[Row]] | None = None

    def __len__(self) -> int:
        return len(self.examples)

    def digest(self) -> str:
        """SHA-256 of all examples."""
        sha = hashlib.sha256()
        for example in [*self.examples, *self.held_out]:
            sha.update(repr(example).encode())
        return sha.hexdigest()[:16]

    def key(self, number: int) -> str:
        """Name of everything that model `number`'s ids depend on."""
        return cache.key_of(self.layouts[number].key(), self.digest())

    def tokenised(self, layout: Layout) -> list[Row]:
        """Ids of all examples for one model."""
        self.counts["rows_prepared"] += len(self.examples)
        return [layout.row(example) for example in self.examples]

    def cached(self, layout: Layout, cache_dir: Path) -> list[Row]:
        """As `tokenised`, from a file that is made once for all runs."""
        folder = cache_dir / f"latentwire-tokens-{cache.key_of(layout.key(), self.digest())}"
        rows = cache.load_rows(folder, len(self.examples))
        if rows is None:
            with cache.locked(folder):
                rows = cache.load_rows(folder, len(self.examples))
                if rows is None:
                    rows = self.tokenised(layout)
                    cache.save_rows(folder, rows)
                    self.counts["token_caches_built"] += 1
        return rows

    def row(self, model: int, number: int) -> Row:
        """Ids of example `number` for a model; made again unless they are stored."""
        if self.stored is not None:
            return self.stored[model][number]
        self.counts["rows_tokenised"] += 1
        return self.layouts[model].row(self.examples[number])

    def answer_length(self, model: int, number: int) -> int:
        """Tokens of an answer, its end included."""
        if self.stored is not None:
            return len(self.stored[model][number].answer)
        return len(self.layouts[model].answer(self.examples[number].answer))

    def header(self, model: int) -> list[int]:
        """Ids that all scaffolds of a model begin with."""
        layout = self.layouts[model]
        first, second = layout.scaffold("a"), layout.scaffold("b")
        same = 0
        while first[same] == second[same]:
            same += 1
        return first[:same]
