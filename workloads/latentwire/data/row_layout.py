"""The place of each token: one contract for all losses.

Student row: ``[BOS?][M latents][anchor][y_0 .. y_{n-1} = end][right pad]``; P counts everything before y_0.
Teacher row: ``[scaffold][y_0 ..][right pad]``; the scaffold is the rendered chat with the source and the
anchor. Position P-1+j (S-1+j) predicts y_j. BOS comes first or nowhere, never inside the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.data.tokens import SYSTEM, FolderTokenizer, Tokenizer

ANCHOR_TEXT = "Answer: "
THOUGHT = re.compile(r"[<\[](/?)\|?(?:\w+:)?(?:think|thinking|thought|reasoning)\|?[>\]]", re.IGNORECASE)
"""What opens and closes a thought in the chat templates of models that reason."""


@dataclass(frozen=True)
class Row:
    """Ids of one example for one model: `scaffold` [S] and `answer` [n], its end included."""

    scaffold: list[int]
    answer: list[int]


@dataclass(frozen=True)
class Layout:
    """How one model's rows are written.

    Attributes
    ----------
    latents, answer_tokens : M and T
    max_prompt : longest scaffold; sources are cut to it, never the template
    """

    tokenizer: Tokenizer | FolderTokenizer
    anchor: str
    latents: int
    answer_tokens: int
    max_prompt: int

    def __post_init__(self) -> None:
        """Refuse a model without a chat template, or with one that ends inside a thought.

        Raises
        ------
        ConfigError
            The teacher's prompt cannot be written, or answers would be part of the thought.
        """
        if self.tokenizer.template is None:
            raise ConfigError(
                "this tokenizer has no chat template, which the teacher's prompt needs; set"
                " workload.chat_template"
            )
        marks = list(THOUGHT.finditer(self._template.rpartition("{user}")[2]))
        if marks and not marks[-1][1]:
            raise ConfigError(
                f"this model's chat template ends with the opened thought {marks[-1][0]}, and answers would"
                " be part of it; set workload.chat_template to one that closes it"
            )

    @property
    def before(self) -> list[int]:
        """Ids before the latents."""
        return [] if self.tokenizer.bos is None else [self.tokenizer.bos]

    @property
    def anchor_text(self) -> str:
        """Text between latents and answer; a blank goes to whichever side the tokenizer joins it to."""
        if self.anchor != "text":
            return ""
        return ANCHOR_TEXT.rstrip() if self.tokenizer.blank_leads else ANCHOR_TEXT

    @property
    def anchor_ids(self) -> list[int]:
        """Ids between the latents and the answer."""
        if self.anchor == "text":
            return self.tokenizer.encode(self.anchor_text)
        if self.anchor == "chat":
            return self.tokenizer.encode(self._template.rpartition("{user}")[2])
        return []

    @property
    def prefix(self) -> int:
        """P."""
        return len(self.before) + self.latents + len(self.anchor_ids)

    @property
    def _template(self) -> str:
        template = self.tokenizer.template
        assert template is not None
        return template

    def key(self) -> str:
        """Everything that ids depend on in addition to the data."""
        fields = (
            self.tokenizer.key,
            self._template,
            self.anchor,
            self.anchor_text,
            SYSTEM,
            self.answer_tokens,
            self.max_prompt,
        )
        return repr(fields)

    def scaffold(self, source: str) -> list[int]:
        """Ids of the teacher's prompt; a source that is too long is cut in its content.

        Raises
        ------
        ConfigError
            Not even the template fits.
        """
        head, _, tail = self._template.replace("{system}", SYSTEM).partition("{user}")
        before, after = self.before + self.tokenizer.encode(head), self.tokenizer.encode(tail)
        after += self.tokenizer.encode(self.anchor_text)
        room = self.max_prompt - len(before) - len(after)
        if room < 1:
            raise ConfigError(
                f"workload.max_prompt={self.max_prompt} leaves no room after the template's"
                f" {len(before) + len(after)} tokens; raise it"
            )
        # The source is data: a special token written in it stays text.
        content = source.strip() if self.tokenizer.trims else source
        return before + self.tokenizer.encode(content, specials=False)[:room] + after

    def answer(self, text: str) -> list[int]:
        """Ids of an answer, cut so that its end always fits."""
        ids = self.tokenizer.encode(self._answer_text(text), specials=False)
        return [*ids[: self.answer_tokens - 1], self.tokenizer.end]

    def _answer_text(self, text: str) -> str:
        return f" {text}" if text and self.anchor == "text" and self.tokenizer.blank_leads else text

    def row(self, example: Example) -> Row:
        """Ids of an example."""
        return Row(self.scaffold(example.source), self.answer(example.answer))

    def separable(self, example: Example) -> bool:
        """Whether the scaffold's last text and the answer, written in one, are cut where the two meet."""
        tail = self._template.rpartition("{user}")[2] + self.anchor_text
        alone = self.tokenizer.encode(tail)
        together = self.tokenizer.encode(tail + self._answer_text(example.answer))
        return together[: len(alone)] == alone
