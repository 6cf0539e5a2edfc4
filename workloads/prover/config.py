"""What is evaluated. Nothing here changes how: that is the toggles' part."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from perfsweep.workloads.errors import ConfigError, Ruled
from perfsweep.workloads.prover.data.formats import Problem, read_problem
from perfsweep.workloads.prover.data.generator import generate

MODES = ("head", "tail", "both")
GENERATORS = ("kinship", "countries", "wide")
FULL = (250, 256, 8)
SIZES = {"embedding": 32, "width": 32, "layers": 2}
"""Of a policy with random weights."""


@dataclass(frozen=True)
class ProverConfig(Ruled):
    """Data, policy and candidates, equal for all arms of a comparison.

    Attributes
    ----------
    data : generator name (kinship, countries, wide) or a folder with train.txt, test.txt and rules.txt
    data_seed, size, hide, distractors : of a generator; `size` is clans, countries or entities
    arity : largest number of arguments of a relation
    weights : file of a policy, see `perfsweep.workloads.prover.policy_file`, or of upstream's; null: random
        weights
    atom_embedder, state_embedder, variables : of upstream's policy: how it makes goals of rows of its
        tables, transe or sum, and states of goals, mean or sum, and how many rows of its table of constants
        are for variables
    embedding, width, layers : the policy's sizes; null: those of the file, or 32, 32 and 2
    policy_seed : of random weights
    gain : factor of the last random layer, so that logits reach some hundreds, as sharp as after training,
        and not ten or so
    imitation : passes over shortest proofs of training queries before the evaluation; 0 leaves the policy as
        it is
    queries : test queries, the first of a seeded order; null: all
    query_seed : of that order
    corruptions : candidates per query in addition to the query itself; null: every eligible entity
    corruption_seed : of the keys that choose them
    modes : what is corrupted: head, tail or both, separated by commas
    provable_limit : a query counts as provable if its shortest proof has at most this many actions
    memory_gb : refuse, as out of memory, what is predicted to need more; null: what the device has
    """

    data: str = "kinship"
    data_seed: int = 0
    size: int = 3
    hide: float = 0.2
    distractors: int = 0
    arity: int = 2
    weights: str | None = None
    atom_embedder: str | None = None
    state_embedder: str | None = None
    variables: int = 1000
    embedding: int | None = None
    width: int | None = None
    layers: int | None = None
    policy_seed: int = 0
    gain: float = 4.25
    imitation: int = 0
    queries: int | None = 6
    query_seed: int = 0
    corruptions: int | None = 8
    corruption_seed: int = 0
    modes: str = "both"
    provable_limit: int = 3
    memory_gb: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be evaluated.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._check_whole_numbers()
        self._require("arity", _whole(self.arity, 1) and self.arity <= 4, "a whole number from 1 to 4")
        self._require("hide", 0 < self.hide < 1, "between 0 and 1")
        self._require("gain", self.gain > 0, "a number above 0")
        self._require("memory_gb", self.memory_gb is None or self.memory_gb > 0, "null or a number above 0")
        unknown = [mode for mode in self.mode_names if mode not in MODES]
        self._require("modes", bool(self.mode_names) and not unknown, f"a list of: {', '.join(MODES)}")
        if self.arity == 1:
            self._require(
                "modes", self.mode_names == ("head",), "head, for relations with one argument have no tail"
            )
        self._refuse_what_is_about_other_weights()
        named = self.data in GENERATORS or "/" in self.data
        path = f"the path of a folder with a slash in it, such as ./{self.data}"
        self._require("data", named, f"{path}, or one of: {', '.join(GENERATORS)}")

    def _refuse_what_is_about_other_weights(self) -> None:
        self._require("weights", self.weights != "", "null or the path of a file")
        of_files, random = ("atom_embedder", "state_embedder", "variables"), ("policy_seed", "gain")
        names, about = (of_files, "a policy's file") if self.weights is None else (random, "random weights")
        for name in names:
            if getattr(self, name) != getattr(ProverConfig, name):
                raise ConfigError(
                    f"workload.{name}={getattr(self, name)} is about {about}, and"
                    f" workload.weights={self.weights} gives others; leave one of them out"
                )

    def _check_whole_numbers(self) -> None:
        for name in ("size", "variables", "provable_limit"):
            self._require(name, _whole(getattr(self, name), 1), "a whole number from 1")
        seeds = ("data_seed", "policy_seed", "query_seed", "corruption_seed")
        for name in (*seeds, "distractors", "imitation"):
            self._require(name, _whole(getattr(self, name), 0), "a whole number from 0")
        for name, least in (
            ("queries", 1),
            ("corruptions", 1),
            ("embedding", 1),
            ("width", 1),
            ("layers", 0),
        ):
            value = getattr(self, name)
            self._require(name, value is None or _whole(value, least), f"null or a whole number from {least}")

    @property
    def mode_names(self) -> tuple[str, ...]:
        """Modes, as written."""
        return tuple(mode.strip() for mode in self.modes.split(",") if mode.strip())

    @functools.cached_property
    def problem(self) -> Problem:
        """The data themselves, as they were when first asked for.

        Raises
        ------
        ConfigError
            There is no such folder, or a file holds something that cannot be used; the message names file,
            line and text.
        """
        if self.data in GENERATORS:
            return generate(self.data, self.size, self.data_seed, self.hide, self.distractors)
        return read_problem(self.data, self.arity)

    @functools.cached_property
    def largest_id(self) -> int:
        """Largest id that packing meets."""
        return self.problem.largest_id(self.arity)

    @functools.cached_property
    def longest_body(self) -> int:
        """Atoms of the longest body of a rule."""
        return self.problem.longest_body


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
