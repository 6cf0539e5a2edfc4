"""Training scripts as texts: the smallest, how variants of it are written, and some of other kinds."""

from __future__ import annotations

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""

STEP = """
    optimizer.zero_grad()
    loss = (net(torch.randn(8, 4)) ** 2).mean()
    loss.backward()
    optimizer.step()
"""


def loop(body: str = "", head: str = "", times: str = "while True:", step: str = STEP) -> str:
    """A loop whose iteration ends with `body`; `head` stands before it."""
    inner = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{HEAD}{head}\n{times}{step}{inner}"


LOOP = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(8):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
"""
"""A training of eight iterations; what is put before it runs in set-up, what is put behind it at its end."""

ATTENTION = """
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2)).tanh()

torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rows = TensorDataset(torch.randn(48, 6, 16), torch.randint(4, (48, 6)))
loader = DataLoader(rows, batch_size=16, shuffle=True)
while True:
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
"""
"""Two blocks of attention, gradients clipped, dropped before each backward pass."""

IMAGES = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images, labels = torch.randn(8, 3, 8, 8), torch.randint(4, (8,))
while True:
    for micro in range(2):
        loss = nn.functional.cross_entropy(model(images[micro::2]), labels[micro::2]) / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""
"""Convolutions; gradients added up over two backward passes, and zeroed after the update."""
