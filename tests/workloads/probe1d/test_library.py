"""One's own activations go in, documented files come out; the page's commands do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from documented import ROOT, blocks, execute
from scipy import sparse
from sklearn.metrics import f1_score, roc_auc_score

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d import fit_probes, oracle
from perfsweep.workloads.probe1d.config import Probe1DConfig
from perfsweep.workloads.probe1d.data.npz import PROBES
from perfsweep.workloads.probe1d.variants import TOGGLES

HERE = Device(compiler=True)
PAGE = ROOT / "docs" / "probe1d.md"
BEST = {"solver": "newton", "csc_layout": "on", "active_set": "pair", "warm_start": "on", "slab_size": "all"}


@pytest.fixture(scope="module")
def activations():
    rng = np.random.default_rng(0)
    dense = (rng.lognormal(size=(200, 6)) * (rng.random((200, 6)) < 0.3)).astype(np.float32)
    return dense, rng.integers(0, 3, 200)


def excess(dense, labels, probes):
    """Loss above the least that every pair allows, in float64."""
    x = sparse.csr_array(dense)
    flags = labels if labels.ndim == 2 else labels[:, None] == np.arange(probes.coefficients.shape[1])
    events = oracle.Events.of(x.indptr, x.indices, x.data, x.shape[1], flags)
    return (
        oracle.judge(events, probes.intercepts, probes.coefficients).loss
        - oracle.minimise(events, oracle.LOSS)[2]
    )


def test_probes_of_a_sparse_matrix_are_the_minimisers_and_count_every_row(activations):
    dense, labels = activations
    probes = fit_probes(sparse.csr_array(dense), labels, classes=4)
    assert probes.converged.all()
    assert probes.coefficients.shape == (6, 4)
    assert excess(dense, labels, probes).max() <= 2e-6
    assert (sum(probes.confusion.values()) == 200).all()
    assert probes.losses_held_out is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_are_those_of_the_probes_on_their_rows(activations, dtype):
    dense, labels = activations[0].astype(dtype), activations[1]
    dense[:, 1] = 1000 + dense[:, 1]  # b and w x cancel
    probes = fit_probes(dense, labels, x_val=dense[:50], labels_val=labels[:50], classes=4)
    eta = probes.intercepts + probes.coefficients * dense[:, :, None].astype(float)
    cost = np.logaddexp(0, eta) - eta * (labels[:, None, None] == np.arange(4))
    assert np.abs(probes.losses - cost.mean(0)).max() <= 2e-7
    assert probes.losses_held_out is not None
    assert np.abs(probes.losses_held_out - cost[:50].mean(0)).max() <= 2e-7


def test_flags_and_held_out_rows_are_taken(activations):
    dense, labels = activations
    flags = np.stack([labels == 0, labels > 0], 1)
    probes = fit_probes(dense, flags, x_val=dense[:50], labels_val=flags[:50])
    assert excess(dense, flags, probes).max() <= 2e-6
    assert probes.losses_held_out is not None
    assert probes.losses_held_out.min() > 0


@pytest.mark.parametrize("slab_size", ["all", 2])
def test_held_out_rows_are_ranked_and_told_as_scikit_learn_says(slab_size):
    rng = np.random.default_rng(1)
    # Few values, of either sign: ties are everywhere. The last class is never held out.
    dense = rng.integers(-2, 4, (300, 5)) * (rng.random((300, 5)) < 0.6) * [1, 1, 1, 1, 0]
    labels = np.clip(dense[:, 0] + rng.integers(0, 3, 300), 0, 3)
    held_out = np.arange(300) % 3 == 0
    labels[held_out & (labels == 3)] = 0
    train, rest = dense[~held_out], dense[held_out]
    probes = fit_probes(
        train, labels[~held_out], x_val=rest, labels_val=labels[held_out], slab_size=slab_size
    )
    for latent in range(5):
        logit = probes.intercepts[latent] + probes.coefficients[latent] * rest[:, [latent]]
        for label in range(3):
            y = labels[held_out] == label
            assert probes.auroc_held_out[latent, label] == pytest.approx(roc_auc_score(y, logit[:, label]))
            f1 = f1_score(y, logit[:, label] > 0, zero_division=0)
            assert probes.f1_held_out[latent, label] == pytest.approx(f1)
    assert np.isnan(probes.auroc_held_out[:, 3]).all()
    assert (probes.f1_held_out[:, 3] == 0).all()


def test_the_path_is_the_fastest_arm_of_the_headline_and_says_so(activations):
    folder = ROOT / "conf" / "sweep" / "probe1d"
    headline = yaml.safe_load((folder / "headline.yaml").read_text())
    fastest = headline["sweep"]["designs"][0]["arms"]["newton_native"]
    levels = fit_probes(*activations).levels
    assert levels == Space(TOGGLES, Probe1DConfig(), HERE).closure(fastest)
    assert "metrics" not in headline["workload"]  # losses and counts are part of what is timed


def test_without_a_compiler_the_path_warns_and_says_so(activations, monkeypatch):
    monkeypatch.setattr("perfsweep.workloads.probe1d.library.compiler_here", lambda: None)
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler is on PATH"):
        probes = fit_probes(*activations)
    assert probes.levels["fused_kernel"] == "off"
    assert probes.converged.all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x_csr": np.full((200, 2), np.nan)}, "values holds nan in row 0"),
        ({"labels": np.zeros(199, dtype=int)}, "each of 200 rows"),
        ({"x_val": np.ones((2, 6))}, "belong together"),
        ({"slab_size": 0}, "slab_size=0"),
        ({"tol": 2.0}, "workload.tol=2"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(activations, given, message):
    dense, labels = activations
    with pytest.raises(ConfigError, match=message):
        fit_probes(**{"x_csr": dense, "labels": labels, **given})


def test_a_kept_job_is_the_documented_file(solve, tmp_path):
    workload = solve(BEST, data="test")
    folder = tmp_path / "kept"
    folder.mkdir()
    workload.keep(folder)
    assert [path.name for path in folder.iterdir()] == ["probes.npz"]
    with np.load(folder / "probes.npz") as stored:
        assert {name: stored[name].dtype for name in stored.files} == {
            name: np.dtype(kind) for name, (kind, _) in PROBES.items()
        }
        assert stored["classes"].tolist() == list(range(8))
        assert np.array_equal(stored["coef"], workload.results()["coef"])
    with pytest.raises(ConfigError, match="exists"):
        workload.keep(folder)
    with pytest.raises(ConfigError, match="cannot be written"):
        workload.keep(tmp_path / "nowhere")


def test_a_job_that_is_not_done_has_nothing_to_keep(set_up, tmp_path):
    with pytest.raises(ConfigError, match="before the job is done"):
        set_up({}, data="test").keep(tmp_path)


@pytest.mark.workloads
def test_a_sampled_job_says_which_classes_its_columns_are(solve, tmp_path):
    workload = solve(BEST, data="nfail", max_iter=1, metrics=False)
    workload.keep(tmp_path)
    with np.load(tmp_path / "probes.npz") as stored:
        assert stored["classes"].tolist() == workload.task.grid.tolist()
        assert stored["coef"].shape == (2048, 8)


def test_the_page_lists_the_arrays_of_a_file_of_probes():
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \| \[", PAGE.read_text(), re.MULTILINE))
    assert listed == {name: kind.__name__ for name, (kind, _) in PROBES.items()}


@pytest.mark.workloads
def test_the_page_is_done_as_it_is_written(tmp_path: Path):
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
            execute(["python", block.file], tmp_path)
        elif block.language == "sh":
            for words in block.commands:
                execute(words, tmp_path)
    fitted, kept = (dict(np.load(tmp_path / name)) for name in ("fitted.npz", "probes/probes.npz"))
    assert fitted["coef"].shape == (50, 5)
    assert np.allclose(kept["loss"], fitted["loss"], rtol=0, atol=2e-6)
