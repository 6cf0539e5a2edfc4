"""Fields of a config.json: each is used, changes nothing, or is refused by name."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from perfsweep.workloads.errors import ConfigError

_INERT = {
    "file": "auto_map custom_pipelines dtype is_llama_config model_max_length name_or_path tokenizer_class"
    " torch_dtype transformers.js_config transformers_version unsloth_fixed unsloth_version",
    "how passes run, and what else they give": "attn_implementation cache_implementation"
    " chunk_size_feed_forward gradient_checkpointing initializer_range is_decoder output_attentions"
    " output_hidden_states pretraining_tp return_dict tf_legacy_loss torchscript use_bfloat16 use_cache",
    "dropout": "attention_dropout classifier_dropout embd_pdrop hidden_dropout resid_pdrop",
    "ids": "bos_token_id decoder_start_token_id eos_token_id pad_token_id prefix sep_token_id unk_token_id",
    "other tasks": "finetuning_task id2label label2id num_labels problem_type task_specific_params",
    "generation": "assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens"
    " diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty"
    " epsilon_cutoff eta_cutoff exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id"
    " length_penalty max_length max_new_tokens min_length no_repeat_ngram_size num_assistant_tokens"
    " num_assistant_tokens_schedule num_beam_groups num_beams num_return_sequences output_scores"
    " remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens target_lookbehind"
    " temperature top_k top_p typical_p",
}
"""What transformers and others write, and no forward pass of a causal language model reads."""

INERT = frozenset(" ".join(_INERT.values()).split())
"""Fields that say nothing about what is computed from given ids and weights without dropout."""

REQUIRED: Any = object()
"""The default of a field that must be given."""


class Fields:
    """Fields of a JSON object: who reads one says what it may be; `refuse_rest` refuses the others."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, where
        self._used: set[str] = set()

    def refused(self, name: str, rule: str) -> ConfigError:
        """The error for a field that cannot be used."""
        return ConfigError(f"{self.where}: {name}={self._values.get(name)!r} cannot be used: {rule}")

    def get(self, name: str, default: Any = REQUIRED) -> Any:
        """A field as it is; null is the same as left out."""
        self._used.add(name)
        value = self._values.get(name)
        if value is None and default is REQUIRED:
            raise ConfigError(f"{self.where} lacks the field {name}; complete it")
        return default if value is None else value

    def size(self, name: str, default: Any = REQUIRED) -> int:
        """A whole number above 0."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(name, "it must be a whole number above 0; correct it")
        return value

    def size_or_none(self, name: str, default: int | None) -> int | None:
        """A whole number above 0, or None where the file says null."""
        given = self._values.get(name, default)
        return self.get(name, None) if given is None else self.size(name, default)

    def number(self, name: str, default: Any = REQUIRED) -> float:
        """A number above 0."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refused(name, "it must be a number above 0; correct it")
        return float(value)

    def number_or_none(self, name: str, default: float | None) -> float | None:
        """A number above 0, or None where the file says null."""
        given = self._values.get(name, default)
        return self.get(name, None) if given is None else self.number(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, "it must be true or false; correct it")
        return value

    def word(self, name: str, choices: Sequence[str], default: Any = REQUIRED) -> str:
        """One of `choices`."""
        value = self.get(name, default)
        if value not in choices:
            raise self.refused(name, f"computed here are {', '.join(choices)}")
        return value

    def part(self, name: str) -> Mapping[str, Any]:
        """An object; empty where it is left out."""
        value = self.get(name, {})
        if not isinstance(value, Mapping):
            raise self.refused(name, "it must be an object; correct it")
        return value

    def items(self, name: str, default: Sequence[Any] = ()) -> Sequence[Any]:
        """A list."""
        value = self.get(name, default)
        if not isinstance(value, list | tuple):
            raise self.refused(name, "it must be a list; correct it")
        return value

    def only(self, name: str, value: Any, rule: str) -> None:
        """Refuse a field that says something else than `value`."""
        if self.get(name, value) != value:
            raise self.refused(name, rule)

    def refuse_rest(self, inert: Collection[str] = (), excused: Collection[str] = ()) -> None:
        """Refuse every field that was not read, is not `inert`, and is not off (null, false or empty).

        `excused` are fields that the user declares inert; none of them may have been read.

        Raises
        ------
        ConfigError
            There is one; it is named.
        """
        if read := sorted(self._used & set(excused) & set(self._values)):
            raise ConfigError(
                f"workload.inert_fields=[{read[0]}]: {self.where} has {read[0]}, which is computed here;"
                " leave it out of inert_fields"
            )
        for name in sorted(set(self._values) - self._used - {*inert, *excused}):
            value = self._values[name]
            if not (name.startswith("_") or value is None or value is False or value in ([], {})):
                raise ConfigError(
                    f"{self.where}: {name}={value!r} is not computed here; if it changes nothing in the"
                    f" model's own code, set workload.inert_fields=[{name}]"
                )
