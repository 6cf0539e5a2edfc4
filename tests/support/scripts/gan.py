"""Two optimisers: two updates of the discriminator for each of the generator."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
discriminator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
while True:
    for _ in range(2):
        real, fake = torch.randn(16, 8) + 2, generator(torch.randn(16, 4)).detach()
        loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
        of_discriminator.zero_grad()
        loss.backward()
        of_discriminator.step()
    loss = F.softplus(-discriminator(generator(torch.randn(16, 4)))).mean()
    of_generator.zero_grad()
    loss.backward()
    of_generator.step()
