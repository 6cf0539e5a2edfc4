"""The tokenizer and chat template that a local model's folder brings along."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.tokens import SYSTEM

SAID = "{user}"
TODAY = "26 Jul 2024"
"""The date that templates write where they are told none: with the real one, ids would change overnight."""


@dataclass(frozen=True)
class FolderTokenizer:
    """Text to ids and back, as the folder's own library does it; the surface of `tokens.Tokenizer`.

    Attributes
    ----------
    template : rendered chat with {user} in it, without the BOS that comes first anyway; None: there is none
    trims : whether the chat template strips blanks around what it is given
    blank_leads : a blank belongs to the word after it, so that an answer begins with one
    """

    template: str | None
    bos: int | None
    end: int
    pad: int
    trims: bool
    blank_leads: bool
    key: str
    _library: Any = field(repr=False)

    @property
    def vocabulary(self) -> int:
        """Number of ids, the largest and one."""
        return max(self._library.get_vocab().values()) + 1

    def encode(self, text: str, specials: bool = True) -> list[int]:
        """Ids of `text`, without a BOS; special tokens written out in it become ids if `specials` is on."""
        return self._library(text, add_special_tokens=False, split_special_tokens=not specials).input_ids

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`; special tokens have none."""
        return self._library.decode(ids, skip_special_tokens=True)

    def with_template(self, template: str | None) -> FolderTokenizer:
        """The same tokenizer with another chat template, {system} and {user} in it."""
        return dataclasses.replace(self, template=template, trims=False)


def read_tokenizer(folder: Path, replaced: bool = False) -> FolderTokenizer:
    """The tokenizer of a model's folder; its chat template may be of any kind where it is `replaced`.

    Raises
    ------
    ConfigError
        The folder has none that can be read, it has no token that ends an answer, its template cannot be
        used, or it cuts pieces of text otherwise than the whole.
    """
    where = f"workload.lm_path={folder}"
    library = _load(folder, where)
    if library.eos_token_id is None:
        raise ConfigError(f"{where}: its tokenizer names no eos_token, which ends answers; name it in"
                          " tokenizer_config.json")  # fmt: skip
    try:
        template, trims = _template(library, where)
    except ConfigError:
        if not replaced:
            raise
        template, trims = None, False
    bos = _bos(library, template)
    key = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()[:16]
    end, pad = library.eos_token_id, library.pad_token_id
    found = FolderTokenizer(
        None if template is None else template.removeprefix(library.bos_token or ""),
        bos,
        end,
        end if pad is None else pad,
        trims,
        _blank_leads(library),
        f"{key}/{bos}/{end}",
        library,
    )
    _refuse_prefixed(found, where)
    return found


def _load(folder: Path, where: str) -> Any:
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(
            f"{where} has no tokenizer.json: its ids mean nothing without it; complete the folder"
        )
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            f"{where}: its tokenizer needs the package transformers; install perfsweep[hf]"
        ) from error
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        raise ConfigError(
            f"{where}: tokenizer.json or tokenizer_config.json cannot be read ({_first_line(error)}); copy"
            " the model again"
        ) from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _template(library: Any, where: str) -> tuple[str | None, bool]:
    """The chat with {user} in place of the source, and whether blanks around that are stripped."""
    if library.chat_template is None:
        return None, False
    try:
        plain, padded = (_rendered(library, text) for text in (SAID, f"{SAID}\n"))
    except Exception as error:
        raise ConfigError(
            f"{where}: its chat template cannot be used for a system and a user message"
            f" ({_first_line(error)}); set workload.chat_template"
        ) from error
    if plain.count(SAID) != 1 or SYSTEM not in plain:
        raise ConfigError(
            f"{where}: its chat template leaves out the system's or the user's message; set"
            " workload.chat_template"
        )
    return plain, plain == padded


def _rendered(library: Any, text: str) -> str:
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return library.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, date_string=TODAY)


def _bos(library: Any, template: str | None) -> int | None:
    """The BOS of rows: where the tokenizer or the template begins with one."""
    if library.bos_token_id is None:
        return None
    written = template is not None and template.startswith(library.bos_token)
    return library.bos_token_id if written or library("a").input_ids[:1] == [library.bos_token_id] else None


def _blank_leads(library: Any) -> bool:
    """Whether some id is a blank and the word after it."""
    texts = (library.decode([number]) for number in range(len(library)))
    return any(text[:1] == " " and text[1:2].isalpha() for text in texts)


def _refuse_prefixed(tokenizer: FolderTokenizer, where: str) -> None:
    """Rows are built of pieces: text must be cut alike in a piece and in the whole."""
    pieces = ("Answer:", " a") if tokenizer.blank_leads else ("Answer: ", "a")
    if tokenizer.encode(pieces[0]) + tokenizer.encode(pieces[1]) != tokenizer.encode("".join(pieces)):
        raise ConfigError(
            f"{where}: its tokenizer puts a blank before every piece of text, as Llama 2's does, and rows"
            " are built of pieces; use a model with a byte-level tokenizer, as Llama 3 and Qwen2 have"
        )
