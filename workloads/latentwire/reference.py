"""The naive path of the LatentWire report, as upstream had it, by its behaviour.

Read it first: an encoder turns the bytes of a text into a few latents, an adapter for each frozen language
model turns these into soft tokens, and the model reads them in the place of the text. Four losses are summed
over answers that both can give: every answer token, the first, the early ones, and the distance of these to
what the same model says after the text itself. A step takes an effective batch row by row, keeps the graphs
of all rows, runs one backward pass through their sum, and reads every number on the host.

It knows no toggle. Each toggle is a class in `variants` that replaces some of these methods; an arm is this
class with those of its levels before it.

Dimensions: B rows of a piece, M latents of width d_z, P positions before an answer of T tokens, K early
tokens, d width of a model, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Context, Levels, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data import cache
from perfsweep.workloads.latentwire.data.batches import (
    Collator,
    ModelPiece,
    Numbers,
    Piece,
    Prompts,
    Shape,
    Window,
)
from perfsweep.workloads.latentwire.data.corpus import Corpus, layouts_for
from perfsweep.workloads.latentwire.maths import losses
from perfsweep.workloads.latentwire.maths.attention import Attend, eager
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, calibrated, table_rms
from perfsweep.workloads.latentwire.maths.frozen import DTYPES, Model, frozen_lm, model_shapes, parameters_of
from perfsweep.workloads.latentwire.maths.greedy_decoding import Decoder
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.losses import Given, StudentOut, cross_entropy
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, Prefix, Rows
from perfsweep.workloads.latentwire.maths.trainables import Trained, groups_of, trained_for
from perfsweep.workloads.latentwire.presets import LMConfig
from perfsweep.workloads.latentwire.training.updates import Updates

CHUNK = 4  # rows that the teacher reads at a time


class Reference(Updates):
    """The naive path. It takes an arm's levels for its variants, and looks at none of them.

    Parameters
    ----------
    levels : of all toggles
    phase : marks phases
    """

    pins = False
    """Whether what loads windows pins their memory, which variants ask."""

    def __init__(
        self,
        config: LatentWireConfig,
        levels: Levels,
        context: Context,
        phase: Callable[[str], AbstractContextManager[Any]] = NullClock.phase,
    ) -> None:
        super().__init__(config, context)
        self.levels, self.phase = levels, phase
        self.sizes, self.dtype = config.sizes, DTYPES[config.dtype]
        self.fingerprints: dict[int, str] = {}
        self.loading: Iterator[Window] = iter(())

    # What is made once.

    def build(self) -> None:
        """Make data, models, what is trained, and the optimiser.

        Raises
        ------
        ConfigError
            Data, models or memory do not allow this training.
        """
        shapes = model_shapes(self.config)
        self.layouts = layouts_for(self.config, shapes, self.context.cache_dir)
        self.corpus = Corpus(self.config, self.layouts)
        self.prepare_tokens()
        self.encoder, self.trained = self.trainables(shapes)
        self.total_models = len(shapes)
        self.models = {number: self.model(number, shapes[number]) for number in self.own_models(len(shapes))}
        self.optimise(groups_of(self.encoder, self.trained), self.training_steps)
        shape = self.window_shape()
        self.shape = shape.with_micro(self.rows_at_a_time(shape))
        self.collator = Collator(self.corpus, self.shape)
        self.prepare_rows()
        self.prepare_teachers()
        self.spread()

    def prepare_tokens(self) -> None:
        """Tokenise what is tokenised before training: nothing, as every window is when it is made."""

    def prepare_rows(self) -> None:
        """Put rows on the device before training: none."""

    def prepare_teachers(self) -> None:
        """Run the teachers before training: they run in every step."""

    def spread(self) -> None:
        """Put models on several devices: all are on one."""

    def trainables(self, shapes: list[LMConfig]) -> tuple[LatentEncoder, list[Trained]]:
        """The encoder and what each model has of its own, drawn on the host: equal values on every device."""
        sizes, config = self.sizes, self.config
        torch.manual_seed(self.context.seed)
        encoder = LatentEncoder(
            sizes.latent_width,
            sizes.encoder_layers,
            sizes.max_bytes,
            sizes.latents,
            config.norm,
            config.dropout,
        )
        trained = trained_for(config, shapes)
        return encoder.to(self.device, self.dtype), [one.to(self.device, self.dtype) for one in trained]

    def model(self, number: int, shape: LMConfig) -> Model:
        """One frozen model with its trainables."""
        lm = frozen_lm(self.config, number, shape, self.device)
        self.fingerprints[number] = cache.fingerprint(parameters_of(lm).items())
        rho = table_rms(lm.table)
        self.store(lm)
        lm.path = Path(LayerPath(self.attend, self.recompute), self.block, counts=self.counts)
        return Model.of(number, lm, self.trained[number], rho, self.layouts[number], self.config.manifold)

    def store(self, lm: CausalLM) -> None:
        """Store weights in another type: they stay as they are."""

    @property
    def attend(self) -> Attend:
        """Attention of the frozen models: the whole matrix of scores."""
        return eager

    @property
    def recompute(self) -> str:
        """What the backward pass computes again of a layer: nothing."""
        return "off"

    @property
    def block(self) -> Callable[..., Any] | None:
        """A compiled layer: none."""
        return None

    def autocast(self) -> AbstractContextManager[Any]:
        """What passes run under; may be entered again and again."""
        return nullcontext()

    def products(self, endings: Any) -> AbstractContextManager[Any]:
        """What a step's products are made under; `endings` are called when the training has ended."""
        return nullcontext()

    # Rows on their way to the device.

    @property
    def batch(self) -> int:
        """Rows of an optimiser step."""
        return self.sizes.batch

    @property
    def per_epoch(self) -> int:
        """Optimiser steps of an epoch."""
        return math.ceil(len(self.corpus) / self.batch)

    @property
    def training_steps(self) -> int:
        """Optimiser steps of a whole training."""
        return self.per_epoch * self.config.epochs

    def window_shape(self) -> Shape:
        """How windows are cut: in the order of the data, everything padded to its limit.

        Raises
        ------
        ConfigError
            There are fewer examples than a window has rows.
        """
        if self.batch > len(self.corpus):
            raise ConfigError(
                f"toggles.effective_batch={self.batch} is more than the {len(self.corpus)} examples of"
                " workload.data that can be trained on; lower it"
            )
        sizes = self.sizes
        return Shape(
            effective=self.batch,
            micro=self.batch,
            answer_tokens=sizes.answer_tokens,
            early_tokens=sizes.early_tokens,
            full_bytes=sizes.max_bytes,
            dtype=self.encoder.pooler.queries.dtype,
        )

    def rows_at_a_time(self, shape: Shape) -> int:
        """Rows of a piece."""
        return 1

    def start(self, step: int) -> None:
        """Begin with the window of `step`."""
        self.loading = self.windows(step)

    def close(self) -> None:
        """Hand over the last metrics and end loader processes: these go with the last reference to them."""
        self.flush()
        self.loading = iter(())

    def windows(self, step: int) -> Iterator[Window]:
        """Windows without end, on the device, from that of `step` on."""
        return map(self.moved, self.host_windows(Numbers(self.corpus, self.shape, self.context.seed, step)))

    def host_windows(self, numbers: Numbers) -> Iterator[Window]:
        """Windows of lists of rows, made when they are asked for."""
        return map(self.collator.window, numbers)

    def moved(self, window: Window) -> Window:
        """The window on the device, every tensor by itself."""
        return Window([piece.map(self.copied) for piece in window.pieces], window.examples, window.tokenised)

    def copied(self, tensor: Tensor) -> Tensor:
        """A tensor on the device."""
        self.counts["host_copies"] += 1
        return tensor.to(self.device)

    def window_of(self, numbers: list[int]) -> Window:
        """The window of some rows, on the device, apart from those of the training."""
        return Reference.moved(self, self.collator.window(numbers))

    # One window: latents, and for each model the teacher, the student and the losses.

    def gradients(self, window: Window) -> Tensor:
        """Gradients of a window into the parameters; returns terms [6]: tf, first, kce, kd, extra, total."""
        return self.all_pieces(window.pieces)

    def all_pieces(self, pieces: Sequence[Piece]) -> Tensor:
        """As `gradients`; the graphs of all pieces are kept for one backward pass."""
        terms, graphs = list[Tensor](), list[Tensor]()
        for number, piece in enumerate(pieces):
            self.counts["micro_steps"] += 1
            self._fail_if_told(piece)
            with self.phase("encode"):
                z = self.latents(piece)
            loss, of_piece = self.all_models(z, piece, number == 0)
            self.checked(of_piece)
            terms += of_piece
            graphs += self.kept(loss)
        if graphs:
            self.counts["graphs_kept"] += len(graphs)
            self.backward(torch.stack(graphs).sum())
        penalty = self.scale_penalty().detach()
        if not terms:  # a last window with fewer rows than ranks
            return torch.zeros(6, device=penalty.device, dtype=penalty.dtype)
        total = torch.stack(terms).sum(0)
        return torch.cat((total[:5], (total[5] + penalty).reshape(1)))

    def _fail_if_told(self, piece: Piece) -> None:
        above = self.config.oom_above
        if above is not None and len(piece) > above:
            raise torch.OutOfMemoryError(
                f"injected: {len(piece)} rows are more than workload.oom_above={above}"
            )

    def latents(self, piece: Piece) -> Tensor:
        """z [B, M, d_z]"""
        self.counts["encoder_positions"] += piece.source.numel()
        with self.autocast():
            z = self.encoder(piece.source)
        return z.to(self.encoder.pooler.queries.dtype)

    def all_models(self, z: Tensor, piece: Piece, first: bool) -> tuple[Tensor | None, list[Tensor]]:
        """Loss of all models of a piece, None where gradients are in place already; terms [6] of each."""
        found, terms = [], []
        for number in self.models:
            loss, of_model = self.model_loss(number, z, piece)
            terms.append(torch.cat((of_model, loss.detach().reshape(1))))
            found.append(loss)
        if first:
            found.append(self.scale_penalty())
        return torch.stack(found).sum(), terms

    def kept(self, loss: Tensor | None) -> list[Tensor]:
        """Losses whose graphs wait for the last piece."""
        return [] if loss is None else [loss]

    def backward(self, loss: Tensor) -> None:
        """One backward pass."""
        with self.phase("backward"):
            self.scaled(loss).backward()
        self.counts["backward_calls"] += 1

    def checked(self, terms: list[Tensor]) -> None:
        """Read every term of every model on the host, with an assertion on each, as upstream has it."""
        for of_model in terms:
            for term in of_model.unbind():
                self.counts["syncs"] += 2
                if not (math.isfinite(term.item()) or torch.isfinite(term).item()):
                    self.counts["broken_terms"] += 1

    def model_loss(self, number: int, z: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
        """A model's share of the total [], and terms [5] as shares of the mean over models."""
        loss, terms = self.loss(self.models[number], z, piece.models[number])
        return loss / self.total_models, terms / self.total_models

    def scale_penalty(self) -> Tensor:
        """[] what keeps the adapters' scales near one; once for a window, this rank's share."""
        scales = torch.stack([model.trained.adapter.scale for model in self.models.values()])
        share = 1 / self.row_share[1]
        return (scales - 1).square().sum() * (losses.SCALE_WEIGHT * share / self.total_models)

    def loss(self, model: Model, z: Tensor, piece: ModelPiece) -> tuple[Tensor, Tensor]:
        """The piece's share of this model's loss [], and its terms [5]: tf, first, kce, kd, extra."""
        with self.phase("teacher"):
            given = self.teach(model, piece.prompts)
        with self.phase("student"):
            prefix = self.prefix(model, z)
            with self.autocast():
                out = self.ask(model, prefix, piece.answer)
            terms = losses.model_terms(out, given.distance(out.early_logits), piece.weights)
            extra = self._extra(model, out, given.states, prefix, piece, terms)
            mixture = model.mixture
            if self.config.adaptive_first:
                lift = (terms[1] / terms[0]).detach().clamp(1, 8)
                mixture = torch.cat((mixture[:1], mixture[1:2] * lift, mixture[2:]))
            total = torch.dot(terms, mixture)
            if extra is None:
                return total, torch.cat((terms.detach(), terms.new_zeros(1)))
            return total + extra, torch.cat((terms.detach(), extra.detach().reshape(1)))

    def _extra(
        self,
        model: Model,
        out: StudentOut,
        states: list[Tensor],
        prefix: Prefix,
        piece: ModelPiece,
        like: Tensor,
    ) -> Tensor | None:
        """Optional losses."""
        parts = []
        if self.config.state_kd:
            weights = piece.weights[2, :, : self.sizes.early_tokens]
            parts.append(losses.STATE_WEIGHT * losses.state_distance(out.states, states, weights))
        if model.table is not None:
            parts.append(losses.MANIFOLD_WEIGHT * losses.manifold_distance(prefix.tokens, *model.table))
        return torch.stack([part.to(like.dtype) for part in parts]).sum() if parts else None

    # The teacher: the same frozen model reading the text, asked for the early answer tokens.

    @torch.no_grad()
    def teach(self, model: Model, prompts: Prompts) -> Given:
        """Distributions for a piece."""
        with self.autocast():
            return self.taught(model, prompts)

    def taught(self, model: Model, prompts: Prompts) -> Given:
        """The whole prompts in chunks of four rows, logits at every position."""
        chunks = []
        for first in range(0, len(prompts.lengths), CHUNK):
            rows = slice(first, first + CHUNK)
            longest = max(prompts.lengths[rows])
            at, states = Rows(prompts.positions[rows]), self.states()
            self.count_teacher(prompts.lengths[rows], longest)
            hidden = model.lm.run(model.lm.embed(prompts.ids[rows, :longest]), states=states)
            logits = at.of(self.teacher_logits(model, hidden))
            chunks.append((logits, [at.of(state) for state in states or []]))
        layers = zip(*(states for _, states in chunks), strict=True)
        return Given(torch.cat([logits for logits, _ in chunks]), [torch.cat(layer) for layer in layers])

    def teacher_logits(self, model: Model, hidden: Tensor) -> Tensor:
        """hidden [.., d] -> [.., V]"""
        self.counts["teacher_head_rows"] += hidden.shape[0] * hidden.shape[1]
        return model.lm.logits(hidden)

    def count_teacher(self, lengths: tuple[int, ...], longest: int) -> None:
        """Count rows of these lengths in a pass of `longest` positions."""
        self.counts["teacher_rows"] += len(lengths)
        self.counts["teacher_positions"] += len(lengths) * longest
        self.counts["padded_positions"] += len(lengths) * longest - sum(lengths)

    def states(self) -> list[Tensor] | None:
        """What takes the first layers' outputs, where a loss compares them."""
        return [] if self.config.state_kd else None

    def wants_prompts(self) -> bool:
        """Whether teachers read prompts still."""
        return True

    def teachers_cost(self) -> float:
        """Seconds that the teachers' caches took: there are none."""
        return 0.0

    # The student: the frozen model, asked for the answers after its soft tokens.

    def prefix(self, model: Model, z: Tensor) -> Prefix:
        """z [B, M, d_z] -> soft tokens [B, M, d], as loud as the table's rows, and their deep prefix.

        The deep prefix is made before calibration: keys made of tokens as faint as a table's rows would
        hardly change attention.
        """
        trained = model.trained
        with self.autocast():
            soft = trained.adapter(z)
            past = None if trained.deep is None else trained.deep(soft)
        return Prefix(calibrated(soft.to(model.rho.dtype), self.loudness(model)), past)

    def loudness(self, model: Model) -> Tensor | float:
        """Root mean square of the embedding table, read whole and brought to the host."""
        self.counts["table_reads"] += 1
        return self.known(table_rms(model.lm.table))

    def known(self, value: Tensor) -> Tensor | float:
        """A number [] of the device, on the host."""
        self.counts["syncs"] += 1
        return value.item()

    def around(self, model: Model, prefix: Prefix) -> Prefix:
        """Soft tokens [B, M, d] with the tokens around them: [B, P, d]"""
        soft = prefix.tokens.to(model.anchor.dtype)
        before, anchor = (part.expand(soft.shape[0], -1, -1) for part in (model.before, model.anchor))
        return Prefix(torch.cat((before, soft, anchor), dim=1), prefix.past)

    def ask(self, model: Model, prefix: Prefix, answer: Tensor) -> StudentOut:
        """Soft tokens [B, M, d] and answer [B, T] ids, padded right: a pass for each loss."""
        start = self.around(model, prefix)
        hidden = self.student_pass(model, start, answer[:, :-1])
        ce = cross_entropy(self.student_logits(model, hidden, slice(start.tokens.shape[1] - 1, None)), answer)
        first = self.student_logits(model, self.student_pass(model, start), -1)
        early, _ = self.early(model, start, answer)
        distilled, states = self.early(model, start, answer)
        return StudentOut(
            ce,
            cross_entropy(first, answer[:, 0]),
            cross_entropy(early, answer[:, : self.sizes.early_tokens]),
            distilled,
            first.detach(),
            states,
        )

    def student_pass(self, model: Model, start: Prefix, ids: Tensor | None = None, **more: Any) -> Tensor:
        """Hidden states [B, S, d] of the prefix and the answer tokens `ids` [B, t] after it."""
        x = start.tokens if ids is None else torch.cat((start.tokens, model.lm.embed(ids)), dim=1)
        return self.student_run(model, x, start.past, **more)

    def student_run(self, model: Model, x: Tensor, past: KeyValues | None, **more: Any) -> Tensor:
        """Hidden states of tokens x [B, S, d] after keys and values."""
        self.counts["student_passes"] += 1
        self.counts["student_positions"] += x.shape[0] * x.shape[1]
        return model.lm.run(x, AttentionContext(past), lora=model.trained.lora, **more)

    def student_logits(self, model: Model, hidden: Tensor, read: slice | int) -> Tensor:
        """Logits [B, T, V] of the positions `read`, or [B, V] of one: made for all positions."""
        return model.lm.logits(hidden)[:, read]

    def early(self, model: Model, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, K, V] of the early tokens, a whole pass for each, and the states that they came from."""
        logits, columns = [], []
        for t in range(self.sizes.early_tokens):
            states = self.states()
            logits.append(
                self.student_logits(model, self.student_pass(model, start, answer[:, :t], states=states), -1)
            )
            columns.append([state[:, -1] for state in states or []])
        return torch.stack(logits, dim=1), [torch.stack(layer, dim=1) for layer in zip(*columns, strict=True)]

    @property
    def decoder(self) -> type[Decoder]:
        """Greedy answers: row by row."""
        return Decoder
