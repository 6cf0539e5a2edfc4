"""Levels that won, as edits of the user's files: each known kind, and what is a sentence instead."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perfsweep.workloads.script.edits.draft import Patch, unified
from perfsweep.workloads.script.edits.patch import line_that_reads, patch
from perfsweep.workloads.script.edits.site import (
    BACK,
    COPY,
    FORWARD,
    LOADER,
    OPTIMIZER,
    RESET,
    Holder,
    Line,
    Site,
)

FILE = "/home/me/train.py"

TRAIN = dedent(
    """
    import torch
    from torch import optim

    loader = torch.utils.data.DataLoader(data, batch_size=64)  # all
    model = Net().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    """
).lstrip()


def seen(text: str, what: str, called: str, **facts: Any) -> Site:
    """The site of the first call of a name in a text, as running it would show it."""
    call = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(called)
    )
    end = (call.end_lineno or 0, call.end_col_offset or 0)
    return Site(what, called, FILE, call.lineno, end, (Line(FILE, 0, call.lineno),), **facts)


def forward(text: str, holder: str = "model", **facts: Any) -> Site:
    site = seen(text, FORWARD, holder, device="cpu", tensor=True, **facts)
    return replace(site, called="Net", holders=(Holder(holder, site.lines[0]),))


def patched(levels: Mapping[str, Any], *found: Site, text: str = TRAIN) -> Patch:
    return patch(levels, found, FILE, lambda file: text.encode())


def lines_added(done: Patch, text: str = TRAIN) -> list[str]:
    before = text.splitlines()
    return [line for line in done.files[FILE].decode().splitlines() if line not in before]


def test_arguments_of_one_call_are_one_change() -> None:
    loader = seen(TRAIN, LOADER, "DataLoader", given=("batch_size",))
    done = patched({"num_workers": 2, "persistent_workers": "on", "pin_memory": "on"}, loader)
    assert [str(one) for one in done.changes] == [
        "train.py:4  DataLoader(..., batch_size=64)  ->  "
        "DataLoader(..., batch_size=64, num_workers=2, pin_memory=True, persistent_workers=True)"
    ]
    assert not done.advice
    assert lines_added(done)[0].endswith("persistent_workers=True)  # all")


def test_a_loader_without_workers_is_given_none_of_their_options() -> None:
    loader = seen(TRAIN, LOADER, "DataLoader", workers=0)
    assert not patched({"persistent_workers": "on", "prefetch_factor": 4}, loader).files
    text = TRAIN.replace("batch_size=64", "batch_size=64, num_workers=4, prefetch_factor=2")
    loader = seen(text, LOADER, "DataLoader", workers=4, given=("num_workers", "prefetch_factor"))
    done = patched({"num_workers": 0}, loader, text=text)
    assert "num_workers=0, prefetch_factor=None)" in lines_added(done, text)[0]


def test_an_optimiser_is_asked_for_its_implementation_if_it_has_it() -> None:
    able = seen(TRAIN, OPTIMIZER, "AdamW", options=("foreach", "fused"))
    (change,) = patched({"optimizer": "fused"}, able).changes
    assert str(change) == "train.py:6  AdamW(..., lr=1e-3)  ->  AdamW(..., lr=1e-3, fused=True)"
    assert not patched({"optimizer": "fused"}, seen(TRAIN, OPTIMIZER, "AdamW")).files
    text = TRAIN.replace("lr=1e-3", "foreach=True")
    other = seen(text, OPTIMIZER, "AdamW", options=("foreach", "fused"), given=("foreach",))
    done = patched({"optimizer": "fused"}, other, text=text)
    assert "foreach=False, fused=True)" in lines_added(done, text)[0]


def test_the_forward_call_is_put_under_autocast_with_its_result_in_float32() -> None:
    done = patched({"amp": "bf16"}, forward(TRAIN))
    assert lines_added(done) == [
        '    with torch.autocast("cpu", dtype=torch.bfloat16):',
        "        loss = criterion(model(x).float(), y)",
    ]
    text = TRAIN.replace("import torch\n", "import torch as t\n")
    done = patched({"amp": "bf16"}, forward(text), text=text)
    assert 'with t.autocast("cpu", dtype=t.bfloat16):' in done.files[FILE].decode()


def test_one_kernel_of_attention_is_allowed_where_the_model_is_called() -> None:
    site = replace(forward(TRAIN), tensor=False)
    kernel = "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)"
    added = ["import torch.nn.attention", f"    with {kernel}:", "        loss = criterion(model(x), y)"]
    assert lines_added(patched({"sdpa": "efficient"}, site)) == added
    added[1] = f'    with torch.autocast("cpu", dtype=torch.bfloat16), {kernel}:'
    assert lines_added(patched({"sdpa": "efficient", "amp": "bf16"}, site)) == added


def test_gradients_are_reset_and_copies_wait_as_the_levels_say() -> None:
    reset = seen(TRAIN, RESET, "zero_grad", positions=("set_to_none",), given=("set_to_none",))
    for level, value in (("none", True), ("zero", False)):
        (change,) = patched({"zero_grad": level}, reset).changes
        assert change.after == f"zero_grad(set_to_none={value})" and change.line == 9
    done = patched({"non_blocking": "on"}, seen(COPIED, COPY, "x.to"), text=COPIED)
    assert [one.after for one in done.changes] == ["to(..., non_blocking=True)"]
    assert not patched({"non_blocking": "off"}, seen(COPIED, COPY, "x.to"), text=COPIED).files


COPIED = TRAIN.replace("model(x)", "model(x.to(device))").replace("Net().to(device)", "Net()")


def test_a_call_that_copies_back_too_keeps_waiting() -> None:
    site = seen(COPIED, COPY, "x.to")
    done = patched({"non_blocking": "on"}, site, replace(site, what=BACK), text=COPIED)
    assert not done.files
    assert "copies to the host too, where nothing may read before the copy has ended" in done.advice[0]


def test_a_model_is_compiled_and_laid_out_where_it_has_its_name() -> None:
    done = patched({"compile": "default", "channels_last": "on"}, forward(TRAIN, images=(0,)))
    assert lines_added(done) == [
        "model.to(memory_format=torch.channels_last)",
        "model.compile()",
        "    loss = criterion(model(x.contiguous(memory_format=torch.channels_last)), y)",
    ]
    text = TRAIN.replace("import torch\n", "import torch as t\n")
    done = patched({"channels_last": "on"}, forward(text, images=("x", 0)), text=text)
    assert lines_added(done, text)[0] == "model.to(memory_format=t.channels_last)"
    text = TRAIN.replace("import torch\n", "").replace("model(x)", "model(x=x[:1] + 1)")
    assert lines_added(patched({"compile": "default"}, forward(text), text=text), text) == ["model.compile()"]
    done = patched({"channels_last": "on"}, forward(text, images=("x",)), text=text)
    assert "model(x=(x[:1] + 1).contiguous(memory_format=torch.channels_last))" in lines_added(done, text)[-1]
    compiled = patched({"compile": "max_autotune"}, forward(TRAIN))
    assert lines_added(compiled) == ['model.compile(mode="max-autotune-no-cudagraphs")']


def test_settings_and_the_collector_have_lines_of_their_own() -> None:
    done = patched({"tf32": "on", "cudnn_benchmark": "on", "gc": "frozen"}, forward(TRAIN))
    text = done.files[FILE].decode()
    assert 'import optim\nimport gc\ntorch.set_float32_matmul_precision("high")\ntorch.backends' in text
    assert "gc.collect()\ngc.freeze()\nfor x, y in loader:" in text
    compile(text, FILE, "exec")


SENTENCES: dict[str, tuple[dict[str, Any], Site, str, str]] = {
    "a library": (
        {"optimizer": "fused"},
        Site(OPTIMIZER, "AdamW", "/lib/trainer.py", 9, (9, 5), (Line(FILE, 0, 7),), options=("fused",)),
        TRAIN,
        "train.py:7 has AdamW called by a library, trainer.py:9. By hand: AdamW(..., fused=True)",
    ),
    "a text that is executed": (
        {"optimizer": "fused"},
        Site(OPTIMIZER, "AdamW", "<string>", 1, (1, 5), (Line(FILE, 0, 7),), options=("fused",)),
        TRAIN,
        "train.py:7 runs a text as code (exec), which calls AdamW; the text has no line to edit. By hand: ",
    ),
    "a model outside of loops": (
        {"gc": "frozen"},
        replace(forward(TRAIN), lines=(Line(FILE, 0, 5),)),
        TRAIN,
        "train.py:5 is in no loop of yours. By hand: gc.collect() and gc.freeze() before the loop that",
    ),
    "a kind of call that was not seen": (
        {"num_workers": 2},
        forward(TRAIN),
        TRAIN,
        "train.py:8 calls the model: no call that num_workers=2 changes was seen; perfsweep describe script",
    ),
    "a toggle without an edit": (
        {"threads": 2},
        seen(TRAIN, LOADER, "DataLoader"),
        TRAIN,
        "train.py:1 no edit is known for threads=2; perfsweep describe script says what it does",
    ),
    "a notebook's export": (
        {"optimizer": "fused"},
        seen(TRAIN, OPTIMIZER, "AdamW", options=("fused",)),
        TRAIN.replace("# all", "\n# In[2]:"),
        "train.py:6 is in the export of a notebook (line 5); change the notebook. By hand: AdamW",
    ),
    "a script that reads its source": (
        {"optimizer": "fused"},
        seen(TRAIN, OPTIMIZER, "AdamW", options=("fused",)),
        TRAIN + "print(open(__file__).read())\n",
        "train.py:12 reads the script's own source, which a patch would change. By hand: optimizer=fused",
    ),
    "checkpointing": (
        {"grad_checkpointing": "on"},
        forward(TRAIN),
        TRAIN,
        "train.py:8 calls the model: no edit is known for grad_checkpointing=on. By hand:"
        " torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for block(x), in each block",
    ),
    "a model without a name": (
        {"compile": "default"},
        replace(forward(TRAIN), holders=()),
        TRAIN,
        "train.py:8 calls Net, and no line of yours gives it a name. By hand: model.compile(), once",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_what_cannot_be_edited_is_a_sentence_with_its_line(name: str) -> None:
    levels, site, text, wanted = SENTENCES[name]
    done = patched(levels, site, text=text)
    assert not done.files and not done.changes
    (said,) = done.advice
    assert wanted in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("open(__file__).read()", 1),
        ("data = Path(__file__).parent / 'data.txt'\nopen(data)", 0),
        ("me = Path(__file__).resolve()\nme.read_text()\nopen(me)", 2),
        ("\nwith open(abspath(__file__)) as own: pass", 2),
        ("open('log', __file__)", 0),
        ("open(os.path.join(os.path.dirname(__file__), 'data.txt'))", 0),
        ("print(__file__)\nother = 'data.txt'\nopen(other)", 0),
        ("def f(:", 0),
    ],
)
def test_a_script_that_reads_its_own_source_is_told_from_one_that_reads_beside_it(
    text: str, line: int
) -> None:
    assert line_that_reads(text.encode()) == line


def test_a_patch_is_a_diff_that_other_tools_read(tmp_path: Path) -> None:
    before = {"/home/me/a.py": b"x = 1\r\ny = 2", "/else/b.py": b"z = 3\n"}
    after = {"/home/me/a.py": b"x = 1\r\ny = 3", "/else/b.py": b"z = 3\nw = 4\n"}
    text = unified(before, after, Path("/home/me"))
    assert text.startswith(b"--- a/a.py\n+++ b/a.py\n")
    assert b" x = 1\r\n-y = 2\n\\ No newline at end of file\n+y = 3\n\\ No newline at end of file\n" in text
    assert b"--- a/else/b.py\n" in text and text.endswith(b"+w = 4\n")
