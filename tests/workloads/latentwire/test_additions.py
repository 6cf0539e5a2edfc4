"""LoRA and the deep prefix: what they compute, whom they leave alone, and that every path trains them alike."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from workloads.errors import ConfigError
from workloads.latentwire import lora as lora_module
from workloads.latentwire import quantised, student, workload
from workloads.latentwire.attention import KERNELS, Mask
from workloads.latentwire.config import LatentWireConfig
from workloads.latentwire.corpus import layouts_for
from workloads.latentwire.encoder import table_rms
from workloads.latentwire.lm import CausalLM, KeyValues, LayerPath, Path, Rows
from workloads.latentwire.lora import Lora, LowRank
from workloads.latentwire.presets import LMS, LORA_TARGETS, LMConfig
from workloads.latentwire.toggles import FAST_EXACT
from workloads.latentwire.trained import DeepPrefix
from workloads.latentwire.updates import total_norm
from workloads.latentwire.workload import LatentWire

LORA = {"lora_rank": 4, "lora_targets": list(LORA_TARGETS)}
BOTH = {**LORA, "deep_prefix": True}
FAST = {**FAST_EXACT, "effective_batch": 4, "micro_batch": 4}
FORMS = [(attend, joined) for attend in ("eager", "sdpa") for joined in (False, True)]
ROWS, LENGTH, PAST = 2, 7, 3


def build(attend="eager", joined=False, name="nano-q", dtype=torch.float64, recompute="off") -> CausalLM:
    """With biases and grouped queries."""
    lm = CausalLM(LMS[name], torch.Generator().manual_seed(0), dtype)
    if joined:
        lm.join()
    lm.path = Path(LayerPath(KERNELS[attend], joined, recompute))
    return lm


def inputs(config: LMConfig = LMS["nano-q"]) -> Tensor:
    return torch.randn(ROWS, LENGTH, config.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def additions(targets=LORA_TARGETS, layers=None, alpha=6.0, learned=True) -> Lora:
    torch.manual_seed(2)
    made = Lora(LMS["nano-q"], targets, 3, alpha, layers).double()
    return with_values(made) if learned else made


def with_values(module: Any, seed: int = 3) -> Any:
    """Where a training would have brought it: B is zero at first, and then nothing could be told apart."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, LowRank):
            drawn = 0.1 * torch.randn(part.b.shape, generator=generator)
            part.b.data.copy_(drawn)
    return module


def distance(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


# LoRA


@pytest.mark.parametrize(("attend", "joined"), FORMS)
@pytest.mark.parametrize("rows", [None, Rows(slice(4, 7)), Rows(torch.tensor([[0, 3], [2, 5]]))])
def test_additions_of_zero_change_no_bit(attend, joined, rows) -> None:
    lm, x = build(attend, joined), inputs()
    plain = lm.run(x, Mask(), rows=rows)
    assert torch.equal(lm.run(x, Mask(), rows=rows, lora=additions(learned=False)), plain)
    assert not torch.equal(lm.run(x, Mask(), rows=rows, lora=additions()), plain)


def merged(lora: Lora, scale: float) -> CausalLM:
    """The model with scale * B A added to its matrices, by the definition; their gradients are asked for."""
    lm = build()
    for layer, added in zip(lm.layers, lora.layers, strict=False):
        for name, part in added.named_children():
            matrix = getattr(layer, name).matrix
            matrix.data += scale * part.b.detach() @ part.a.detach()
            matrix.requires_grad_(True)
    return lm


def derivatives(out: Tensor, of: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(4)
    return list(torch.autograd.grad((out * torch.randn_like(out)).sum(), of))


@pytest.mark.parametrize(("attend", "joined"), FORMS)
@pytest.mark.parametrize(
    ("targets", "layers"), [(LORA_TARGETS, None), (LORA_TARGETS, 1), (("q", "v"), None), (("k", "down"), 1), (("up",), None)]
)
def test_additions_are_those_of_merged_weights(attend, joined, targets, layers) -> None:
    """And by the chain rule dA = scale B^T dW, dB = scale dW A^T of the merged matrix W."""
    lora, scale = additions(targets, layers, alpha=6.0), 6.0 / 3
    x = inputs().requires_grad_()
    by_name = [(number, *part) for number, layer in enumerate(lora.layers) for part in layer.named_children()]
    assert {(number, name) for number, name, _ in by_name} == {(n, t) for n in range(layers or 2) for t in targets}
    whole = merged(lora, scale)
    expected = whole.run(x, Mask())
    of_x, *of_matrices = derivatives(expected, [x, *(getattr(whole.layers[n], name).matrix for n, name, _ in by_name)])
    found = build(attend, joined).run(x, Mask(), lora=lora)
    parts = [part for *_, part in by_name]
    got_x, *got = derivatives(found, [x, *(part.a for part in parts), *(part.b for part in parts)])
    assert distance(found, expected) <= 1e-12 and distance(got_x, of_x) <= 1e-12
    of_a = [scale * part.b.T @ w for part, w in zip(parts, of_matrices, strict=True)]
    of_b = [scale * w @ part.a.T for part, w in zip(parts, of_matrices, strict=True)]
    assert max(map(distance, got, [*of_a, *of_b])) <= 1e-10
    # The mutant forgets that the product counts alpha / rank times.
    assert distance(merged(lora, 1.0).run(x, Mask()), expected) > 1e-4


def test_an_addition_to_the_wrong_part_of_joined_weights_is_told_apart(monkeypatch) -> None:
    lora, x = additions(("k",)), inputs()
    expected = merged(lora, 2.0).run(x, Mask())
    monkeypatch.setitem(lora_module.JOINED, "qkv", ("q", "v", "k"))
    assert distance(build("sdpa", True).run(x, Mask(), lora=lora), expected) > 1e-4


@pytest.mark.parametrize("joined", [False, True])
def test_eight_bit_weights_carry_additions(joined) -> None:
    lm, lora, x = build(joined=joined), additions(("q", "k", "v", "gate", "up")), inputs()
    quantised.quantise(lm, "int8_wo")
    layer, added = lm.layers[0], lora.layers[0]
    view = lora_module.adapted(layer, added, joined)
    names = ("qkv", "gate_up") if joined else ("q", "k", "v", "gate", "up")
    for name in names:
        parts = [getattr(added, part) for part in lora_module.JOINED.get(name, (name,))]
        product = torch.cat([2.0 * (x @ part.a.T) @ part.b.T for part in parts], dim=-1)
        assert distance(getattr(view, name)(x) - getattr(layer, name)(x), product) <= 1e-10


@pytest.mark.parametrize("level", ["recompute", "slice", "slice_header", "cache_h"])
def test_the_teacher_knows_nothing_of_additions(start, monkeypatch, tmp_path, level) -> None:
    def taught(learned: bool) -> tuple[Tensor, list[str]]:
        made = start({"teacher": level, "passes": "merged"}, dtype="float64", cache=tmp_path, teacher_fill="lazy", **BOTH)
        if learned:
            learn(made)
        prompts = made._collator.window([0, 1, 2, 3]).pieces[0].models[0].prompts
        return made._objective.models[0].teacher(prompts).logits, sorted(path.name for path in tmp_path.glob("*teacher*"))

    before, after = taught(False), taught(True)
    assert torch.equal(before[0], after[0]) and before[1] == after[1]
    if level == "recompute":  # the mutant lets every pass of the model have them
        run, lora = CausalLM.run, with_values(Lora(LMS["nano-l"], LORA_TARGETS, 4, 16.0).double())
        monkeypatch.setattr(CausalLM, "run", lambda self, x, mask, **more: run(self, x, mask, **{**more, "lora": lora}))
        assert distance(taught(False)[0], before[0]) > 1e-3


# The deep prefix


class Reference:
    """The model written out for one row and one head at a time, with complex rotations: shares nothing with `lm.py`."""

    def __init__(self, lm: Any, *, rotate_past: bool = False, first: int = PAST, hidden: bool = False) -> None:
        self.lm, self.config = lm, lm.config
        self.rotate_past, self.first, self.hidden = rotate_past, first, hidden

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.config.rms_eps).sqrt() * weight

    def turned(self, heads: Tensor, first: int) -> Tensor:
        """[S, e] as e / 2 complex numbers, each turned by its own speed."""
        half = self.config.head_dim // 2
        speed = torch.tensor([self.config.rope_theta ** (-i / half) for i in range(half)], dtype=torch.float64)
        angles = torch.arange(first, first + len(heads), dtype=torch.float64)[:, None] * speed
        z = torch.complex(heads[:, :half], heads[:, half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((z.real, z.imag), dim=-1)

    def head(self, q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor]) -> Tensor:
        old = self.turned(past[0], 0) if self.rotate_past else past[0]
        q, k = self.turned(q, self.first), torch.cat((old, self.turned(k, self.first)))
        v, out = torch.cat((past[1], v)), []
        for i in range(len(q)):
            seen = slice(0, i + 1 if self.hidden else len(old) + i + 1)
            out.append(torch.softmax(k[seen] @ q[i] / math.sqrt(len(q[i])), 0) @ v[seen])
        return torch.stack(out)

    def row(self, x: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x [S, d], past [g, M, e] of every layer -> [S, d]"""
        e, group = self.config.head_dim, self.config.n_heads // self.config.n_kv_heads
        for layer, (keys, values) in zip(self.lm.layers, past, strict=True):
            normed = self.norm(x, layer.norm1)
            q, k, v = (F.linear(normed, w.matrix, w.bias) for w in (layer.q, layer.k, layer.v))
            heads = []
            for h in range(self.config.n_heads):
                own, shared = slice(h * e, (h + 1) * e), slice(h // group * e, (h // group + 1) * e)
                heads.append(self.head(q[:, own], k[:, shared], v[:, shared], (keys[h // group], values[h // group])))
            x = x + torch.cat(heads, -1) @ layer.o.matrix.T
            normed = self.norm(x, layer.norm2)
            x = x + (F.silu(normed @ layer.gate.matrix.T) * (normed @ layer.up.matrix.T)) @ layer.down.matrix.T
        return self.norm(x, self.lm.norm)

    def __call__(self, x: Tensor, past: KeyValues) -> Tensor:
        return torch.stack([self.row(row, [(k[i], v[i]) for k, v in past]) for i, row in enumerate(x)])


def deep_past() -> tuple[DeepPrefix, Tensor, KeyValues]:
    config = LMS["nano-q"]
    torch.manual_seed(5)
    deep = DeepPrefix(config).double()
    soft = torch.randn(ROWS, PAST, config.d_model, dtype=torch.float64).requires_grad_()
    return deep, soft, deep(soft)


@pytest.mark.parametrize(("attend", "joined"), FORMS)
@pytest.mark.parametrize("recompute", ["off", "on", "selective"])
def test_a_deep_prefix_is_what_attention_with_past_keys_gives(attend, joined, recompute) -> None:
    deep, soft, past = deep_past()
    x = inputs().requires_grad_()
    expected = Reference(build())(x, past)
    found = build(attend, joined, recompute=recompute).run(x, Mask(past=PAST), past=past, start=PAST)
    assert distance(found, expected) <= 1e-12
    of = [x, soft, deep.map.weight, deep.map.bias]
    for got, right in zip(derivatives(found, of), derivatives(Reference(build())(x, deep(soft)), of), strict=True):
        assert distance(got, right) <= 1e-10


@pytest.mark.parametrize("mutant", [{"rotate_past": True}, {"first": 0}, {"hidden": True}])
def test_rotated_keys_other_positions_and_an_upper_left_mask_are_told_apart(mutant) -> None:
    _, _, past = deep_past()
    assert distance(Reference(build(), **mutant)(inputs(), past), Reference(build())(inputs(), past)) > 1e-4


def test_keys_and_values_are_linear_in_the_soft_tokens_by_layer_and_head() -> None:
    deep, soft, past = deep_past()
    config = LMS["nano-q"]
    g, e = config.n_kv_heads, config.head_dim
    assert len(past) == config.n_layers
    rows = deep.map.weight.view(config.n_layers, 2, g, e, config.d_model)
    bias = deep.map.bias.view(config.n_layers, 2, g, e)
    for layer, (keys, values) in enumerate(past):
        assert keys.shape == values.shape == (ROWS, g, PAST, e)
        for kind, part in enumerate((keys, values)):
            for head in range(g):
                expected = soft @ rows[layer, kind, head].T + bias[layer, kind, head]
                assert torch.allclose(part[:, head], expected, atol=1e-12)


def test_the_row_follows_the_deep_prefix_in_a_training(start) -> None:
    """The teacher-forced loss, from the reference model and the trained parts alone."""
    made = learn(start({"passes": "merged"}, dtype="float64", models=1, deep_prefix=True))
    model, layout, corpus = made._objective.models[0], made._layouts[0], made._corpus
    found = {}
    with torch.no_grad():
        for first in (layout.latents, 0):  # the mutant counts the row's positions from 0
            nll, tokens = 0.0, 0
            reference = Reference(model.lm, first=first)
            for number in range(4):
                text = list(corpus.examples[number].source.encode()[: corpus.max_bytes])
                soft = model.trained.adapter(made._objective.encoder(torch.tensor([text])))
                loud = soft * (table_rms(model.lm.table) / soft.square().mean().sqrt())
                answer = layout.answer(corpus.examples[number].answer)
                before, anchor, said = (
                    model.lm.table[torch.tensor(ids)][None] for ids in (layout.before, layout.anchor_ids, answer)
                )
                hidden = reference(torch.cat((before, loud, anchor, said), 1), model.trained.deep(soft))
                log_p = (hidden[0] @ model.lm.table.T).log_softmax(-1)
                nll -= sum(log_p[layout.prefix - 1 + j, token].item() for j, token in enumerate(answer))
                tokens += len(answer)
            found[first] = nll / tokens
    reported = made._probe_gradient()["terms"][0].item()
    assert reported == pytest.approx(found[layout.latents], rel=1e-9)
    assert reported != pytest.approx(found[0], rel=1e-6)


# Trainings


def learn(made: LatentWire) -> LatentWire:
    """A training whose additions are not zero any more."""
    for number, trained in enumerate(made._trained):
        with_values(trained, 10 + number)
    return made


@pytest.fixture
def evidence(start, run) -> Callable[..., dict[str, Tensor]]:
    """Terms, all gradients, losses of some steps and greedy answers; in float64, with additions that have learned."""

    def compute(levels=None, steps=1, **config) -> dict[str, Tensor]:
        made = learn(start(levels, **{"dtype": "float64", **config}))
        found = dict(made._probe_gradient())
        run(made, steps)
        made._metrics.flush()
        greedy = torch.cat([ids for ids, _ in made._greedy().values()])
        return {**found, "losses": torch.tensor(list(made._metrics.history), dtype=torch.float64), "greedy": greedy}

    return compute


def deviations(arm: dict[str, Tensor], reference: dict[str, Tensor]) -> float:
    assert torch.equal(arm["greedy"], reference["greedy"])
    return max(distance(arm[name], reference[name]) for name in ("terms", "gradient", "losses"))


PATHS = [
    {"k_loss": "kv", "logits": "slice"},
    {"k_loss": "batched"},
    {"passes": "merged"},
    {"passes": "merged", "logits": "fused_ce", "last_block": "pruned"},
    {"teacher": "slice_header"},
    {"teacher": "cache_h"},
    {"micro_batch": 1, "accum": "backward_each", "model_backward": "per_model"},
    {"lm_layers": "fused"},
    {"lm_layers": "fused", "passes": "merged", "logits": "slice", "last_block": "pruned", "grad_checkpointing": "on"},
    {"attn": "sdpa", "grad_checkpointing": "selective"},
    {"grad_checkpointing": "on"},
    {"freeze": "off"},
    {"encoder_attn": "native", "encoder_trim": "batch_max", "answer_trim": "batch_max"},
    {"decode": "batched", "sync": "late", "optimizer": "fused", "calibration": "once"},
    {"loader": "resident_index", "bucket": "window"},
]


@pytest.mark.parametrize(
    ("config", "paths"),
    [({**BOTH, "models": 1}, PATHS), (BOTH, [FAST]), (LORA, [FAST]), ({"deep_prefix": True}, [FAST])],
    ids=["one_model", "both", "lora", "deep"],
)
def test_every_path_trains_them_alike(evidence, config, paths) -> None:
    """Each path against the naive one, term by term and in the gradient of every trainable."""
    reference = evidence(**config)
    found = {str(levels): deviations(evidence(levels, **config), reference) for levels in paths}
    assert max(found.values()) <= 1e-11, found


@pytest.mark.parametrize("config", [{"state_kd": True}, {"manifold": True}, {"anchor": "chat"}, {"lora_layers": 1}])
def test_options_go_together(evidence, config) -> None:
    fast = {name: level for name, level in FAST.items() if name != "teacher"}
    assert deviations(evidence({**fast, "teacher": "slice_header"}, **BOTH, **config), evidence(**BOTH, **config)) <= 1e-11


def _without_additions(monkeypatch) -> None:
    """Queries of the pruned last layer miss theirs: what a forgotten branch of a fused layer would do."""
    monkeypatch.setattr(lora_module._Adapted, "part", lambda self, x, first, end: self.frozen.part(x, first, end))


def _without_past(monkeypatch) -> None:
    """The merged pass sees only its own row."""
    merged = student.Student._merged
    monkeypatch.setattr(
        student.Student, "_merged", lambda self, start, answer: merged(self, student.Prefix(start.tokens), answer)
    )


def _at_zero(monkeypatch) -> None:
    """A pass that forgets where its row begins."""
    monkeypatch.setattr(CausalLM, "rotation", _shifted(CausalLM.rotation))


def _shifted(rotation):
    return lambda self, start, length, like: rotation(self, 0, length, like)


@pytest.mark.parametrize(
    ("mutate", "levels"),
    [
        (_without_additions, {"lm_layers": "fused", "passes": "merged", "logits": "slice", "last_block": "pruned"}),
        (_without_past, {"passes": "merged"}),
        (_at_zero, {"k_loss": "kv"}),
    ],
)
def test_a_path_that_forgets_them_is_told_apart(evidence, monkeypatch, mutate, levels) -> None:
    reference = evidence(**BOTH)
    mutate(monkeypatch)
    arm = evidence(levels, **BOTH)
    assert max(distance(arm[name], reference[name]) for name in ("terms", "gradient", "losses")) > 1e-4


@pytest.mark.parametrize("levels", [{"lm_dtype": "bf16"}, {"amp": "bf16"}, {**FAST, "lm_dtype": "bf16", "amp": "bf16"}])
def test_sixteen_bits_round_them_and_no_more(evidence, start, levels) -> None:
    arm, reference = evidence(levels, dtype="float32", **BOTH), evidence(dtype="float32", **BOTH)
    assert 1e-5 < distance(arm["gradient"], reference["gradient"]) <= 3e-2
    assert distance(arm["terms"], reference["terms"]) <= 1e-2
    assert {p.dtype for p in start(levels, **BOTH)._updates.parameters} == {torch.float32}


def test_adapters_start_as_they_would_without_options(start) -> None:
    states = [start(**config)._trained[1].adapter.state_dict() for config in ({}, BOTH)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_training_whose_additions_are_zero_is_the_one_without(start) -> None:
    plain, added = (start(FAST, dtype="float64", **config)._probe_gradient() for config in ({}, LORA))
    assert torch.equal(plain["terms"], added["terms"])
    learned = learn(start(FAST, dtype="float64", **LORA))._probe_gradient()
    assert distance(learned["terms"], plain["terms"]) > 1e-4


@pytest.fixture
def clipped(start, run) -> Callable[[], Iterator[float]]:
    """The norm that a step reports, that of all gradients that are there, and what the optimiser sees of it."""

    def compute() -> Iterator[float]:
        made = learn(start({"sync": "late"}, dtype="float64", clip=1e-3, **BOTH))
        probe = made._probe_gradient()["grad_norm"].item()
        modules = [made._objective.encoder, *made._trained]
        seen = {}

        def look(*_):
            seen["norm"] = total_norm([p.grad for module in modules for p in module.parameters() if p.grad is not None])

        made._updates.optimizer.register_step_pre_hook(look)
        made._accumulator.window(next(made._windows), made._phase)
        gradients = [p.grad for module in modules for p in module.parameters() if p.grad is not None]
        whole = total_norm(gradients).item()
        yield from (made._updates.apply().item(), whole, seen["norm"].item(), probe)

    return compute


def test_the_clip_covers_additions_and_deep_prefixes(clipped, monkeypatch) -> None:
    """Upstream clipped encoder and adapters and let the others' gradients through whole."""
    reported, whole, applied, probe = clipped()
    assert reported == pytest.approx(whole, rel=1e-9) and probe > 0
    assert applied == pytest.approx(1e-3, rel=1e-2)
    groups = workload.groups_of
    missing = {"lora0", "lora1", "deep0", "deep1"}
    monkeypatch.setattr(
        workload, "groups_of", lambda *parts: {name: group for name, group in groups(*parts).items() if name not in missing}
    )
    reported, whole, applied, _ = clipped()
    assert reported < 0.99 * whole and applied > 2e-3


def test_steps_train_them_and_leave_the_models_alone(start, run) -> None:
    made = start({"passes": "merged"}, **BOTH)
    frozen = {n: p.clone() for m in made._objective.models.values() for n, p in m.lm.named_parameters()}
    before = copy.deepcopy([trained.state_dict() for trained in made._trained])
    run(made, 2)
    for old, trained in zip(before, made._trained, strict=True):
        still = {name for name, value in trained.state_dict().items() if torch.equal(value, old[name])}
        assert not {name for name in still if name.startswith(("lora", "deep"))}
    after = {n: p for m in made._objective.models.values() for n, p in m.lm.named_parameters()}
    assert all(torch.equal(frozen[name], after[name]) for name in frozen)


def test_training_goes_on_where_a_checkpoint_was_taken(start, run) -> None:
    whole = start({"passes": "merged"}, dtype="float64", lr=1e-2, **BOTH)
    run(whole, 2)
    state = whole.state_dict()
    run(whole, 2)
    for forget in (False, True):  # the mutant's checkpoint lacks what was added to the models
        again = start({"passes": "merged"}, dtype="float64", lr=1e-2, **BOTH)
        kept = [trained.state_dict() for trained in again._trained]
        again.load_state_dict(state)
        if forget:
            for trained, values in zip(again._trained, kept, strict=True):
                trained.load_state_dict({k: v for k, v in values.items() if k.startswith(("lora", "deep"))}, strict=False)
        run(again, 2)
        same = list(again._metrics.history) == pytest.approx(list(whole._metrics.history)[2:], rel=1e-12)
        assert same != forget


def test_only_the_latent_arm_answers_with_them(start) -> None:
    scores = []
    for learned in (False, True):
        made = start({"decode": "batched"}, dtype="float64", **BOTH)
        scores.append((learn(made) if learned else made).evaluate(3))
    for before, after in zip(*scores, strict=True):
        assert (before.nll == after.nll) == (before.arm != "latent"), before.arm


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lora_rank": 0}, r"workload\.lora_rank=0 cannot be used: it must be at least 1, or null"),
        ({"lora_rank": -3}, r"workload\.lora_rank=-3 cannot be used"),
        ({"lora_rank": 8, "lora_layers": 3}, r"workload\.lora_layers=3 cannot be used: it must be at most 2"),
        ({"lora_rank": 8, "lora_layers": 0}, r"workload\.lora_layers=0 cannot be used"),
        ({"lora_rank": 8, "lora_targets": ["q", "w"]}, r"workload\.lora_targets=.*'w'.* must be a list of some of q, k, v, o"),
        ({"lora_rank": 8, "lora_targets": []}, r"workload\.lora_targets="),
        ({"lora_rank": 8, "lora_targets": ["q", "q"]}, r"workload\.lora_targets=.*each once"),
        ({"lora_rank": 8, "lora_alpha": 0.0}, r"workload\.lora_alpha=0\.0 cannot be used: it must be a number above 0"),
        ({"lora_layers": 1}, r"workload\.lora_layers=1 does nothing while workload\.lora_rank is null"),
        ({"lora_targets": ["q"]}, r"workload\.lora_targets=\['q'\] does nothing while workload\.lora_rank is null"),
    ],
)
def test_an_option_that_cannot_be_is_named(config, message) -> None:
    with pytest.raises(ConfigError, match=message):
        LatentWireConfig(preset="test", **config)


def test_derivatives_agree_with_finite_differences() -> None:
    config = LMConfig(32, 16, 1, 2, 1, 8, 24, qkv_bias=True)
    lm = CausalLM(config, torch.Generator().manual_seed(0), torch.float64)
    lm.join()
    lm.path = Path(LayerPath(KERNELS["sdpa"], True))
    torch.manual_seed(0)
    lora, deep = with_values(Lora(config, ("q", "o", "up"), 2, 4.0).double()), DeepPrefix(config).double()
    soft = torch.randn(2, 3, 16, dtype=torch.float64)

    def loss() -> Tensor:
        hidden = lm.run(0.02 * soft, Mask(past=3), past=deep(soft), start=3, lora=lora)
        return lm.logits(hidden).log_softmax(-1)[..., 3].sum()

    loss().backward()
    for parameter in (lora.layers[0].q.a, lora.layers[0].o.b, lora.layers[0].up.a, deep.map.weight, deep.map.bias):
        flat, step = parameter.data.view(-1), 1e-6
        for place in (1, flat.numel() // 2):
            kept, values = flat[place].item(), []
            for moved in (kept + step, kept - step):
                flat[place] = moved
                values.append(loss().item())
            flat[place] = kept
            slope = (values[0] - values[1]) / (2 * step)
            assert parameter.grad.view(-1)[place].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_a_deep_prefix_that_the_model_has_no_positions_for_is_refused(cache_dir) -> None:
    lm = dataclasses.replace(LMS["mid-l"], max_pos=64)
    small = {"preset": "demo", "tokenizer": "bytes", "max_prompt": 40}
    assert layouts_for(LatentWireConfig(**small), [lm], cache_dir)[0].prefix == 41
    with pytest.raises(ConfigError, match=r"workload\.deep_prefix=true take 88 positions, and the model has 64"):
        layouts_for(LatentWireConfig(**small, deep_prefix=True), [lm], cache_dir)
