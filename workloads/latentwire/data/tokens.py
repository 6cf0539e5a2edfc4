"""Tokenizers: of two flavours, trained on generated text and kept in files, or a local model folder's own.

Flavour A pads with its end-of-turn id and starts every text with a BOS; flavour B has a pad of its own and no
BOS. The pair is what upstream's mistakes with counted pads and doubled BOS ids show up on.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data import generator, readers

MAX_BPE = 4096
_TRAINING_EXAMPLES = 2000
# Words keep the blank after them: what follows a blank never changes how the text before it is cut.
_TEMPLATE_REPEATS = 200
SYSTEM = "You answer questions. Use only the context. Reply with the answer and nothing else."
_WORDS = r"\S+\s?|\s+"


@dataclass(frozen=True)
class Flavour:
    """Special tokens and chat template of one family of models.

    `template` has {system} and {user} and ends with the assistant's header; None: the model has no chat
    template.
    """

    specials: tuple[str, ...]
    pad: str
    end: str
    bos: str | None
    template: str | None


A = Flavour(
    ("<|bos|>", "<|start|>", "<|sep|>", "<|eot|>"),
    pad="<|eot|>",
    end="<|eot|>",
    bos="<|bos|>",
    template="<|start|>system<|sep|>{system}<|eot|><|start|>user<|sep|>{user}<|eot|><|start|>assistant<|sep|>",
)
B = Flavour(
    ("<|pad|>", "<|im_start|>", "<|im_end|>"),
    pad="<|pad|>",
    end="<|im_end|>",
    bos=None,
    template="<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n",
)
FLAVOURS = (A, B)


@dataclass(frozen=True)
class Tokenizer:
    """Text to ids and back.

    `encode_plain` and `decode_ids` know no special tokens; specials have the ids from `first_special` on.
    `key` tells tokenizers apart that would give other ids.
    """

    flavour: Flavour
    first_special: int
    encode_plain: Callable[[str], list[int]]
    decode_ids: Callable[[list[int]], str]
    key: str
    trims = blank_leads = False
    _ids: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._ids.update(
            {name: self.first_special + number for number, name in enumerate(self.flavour.specials)}
        )

    @property
    def template(self) -> str | None:
        """The chat template, with {system} and {user} in it."""
        return self.flavour.template

    def with_template(self, template: str | None) -> Tokenizer:
        """The same tokenizer with another chat template."""
        return dataclasses.replace(self, flavour=dataclasses.replace(self.flavour, template=template))

    @property
    def vocabulary(self) -> int:
        """Number of ids."""
        return self.first_special + len(self.flavour.specials)

    def special(self, name: str) -> int:
        """Id of a special token."""
        return self._ids[name]

    @property
    def pad(self) -> int:
        return self._ids[self.flavour.pad]

    @property
    def end(self) -> int:
        """Id that ends a turn, and with it an answer."""
        return self._ids[self.flavour.end]

    @property
    def bos(self) -> int | None:
        return self._ids[self.flavour.bos] if self.flavour.bos else None

    def encode(self, text: str, specials: bool = True) -> list[int]:
        """Ids of `text`, without a BOS; special tokens written out in it become ids if `specials` is on."""
        if not specials:
            return self.encode_plain(text)
        ids: list[int] = []
        for part in self._splitter.split(text):
            if part:
                ids += [self._ids[part]] if part in self._ids else self.encode_plain(part)
        return ids

    @functools.cached_property
    def _splitter(self) -> re.Pattern[str]:
        return re.compile("(" + "|".join(map(re.escape, self._ids)) + ")")

    def decode(self, ids: list[int]) -> str:
        """Text of `ids`; special tokens have none."""
        return self.decode_ids([number for number in ids if number < self.first_special])


def byte_tokenizer(flavour: Flavour) -> Tokenizer:
    """One id for each byte: pure Python, no training."""
    return Tokenizer(
        flavour,
        256,
        lambda text: list(text.encode("utf-8")),
        lambda ids: bytes(ids).decode("utf-8", errors="replace"),
        f"bytes/{flavour.specials}",
    )


def bpe_available() -> bool:
    """Whether the `tokenizers` library is installed."""
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        return False
    return True


def bpe_tokenizer(flavour: Flavour, vocabulary: int, cache_dir: Path) -> Tokenizer:
    """Byte-level BPE of at most `vocabulary` ids, trained on generated text or read from `cache_dir`.

    Raises
    ------
    ConfigError
        The `tokenizers` library is not installed.
    """
    tokenizers = _library()
    size = min(vocabulary, MAX_BPE) - max(len(other.specials) for other in FLAVOURS)
    file = cache_dir / f"latentwire-bpe-{size}-{tokenizers.__version__}.json"
    if not file.exists():
        _publish(_trained(size), file)
    model = tokenizers.Tokenizer.from_file(str(file))
    return Tokenizer(
        flavour,
        size,
        lambda text: model.encode(text, add_special_tokens=False).ids,
        lambda ids: model.decode(ids),
        f"{file.name}/{flavour.specials}",
    )


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ConfigError(
            "workload.tokenizer=bpe needs the package tokenizers; install perfsweep[hf] or use bytes"
        ) from error
    return tokenizers


def _trained(size: int) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_training_text(), trainer)
    return tokenizer


def _training_text() -> Iterator[str]:
    yield from [
        f"{SYSTEM} {A.template} {B.template}"
    ] * _TEMPLATE_REPEATS  # chats are written around every source
    for kind in ("squad", "hotpot"):
        for example in readers.parse(generator.generate(kind, _TRAINING_EXAMPLES, seed=1), kind):
            yield f"{example.source}{example.answer}"


def _publish(tokenizer: Any, file: Path) -> None:
    """Write under a temporary name first: another trial may be reading."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    tokenizer.save(str(draft))
    draft.replace(file)


def tokenizer_for(kind: str, number: int, vocabulary: int, cache_dir: Path) -> Tokenizer:
    """The tokenizer of model `number`: flavours take turns. `kind` is auto, bpe or bytes."""
    flavour = FLAVOURS[number % len(FLAVOURS)]
    if kind == "bytes" or (kind == "auto" and not bpe_available()):
        return byte_tokenizer(flavour)
    return bpe_tokenizer(flavour, vocabulary, cache_dir)


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
