"""A Hydra application."""

import hydra
import torch
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from torch import nn

ConfigStore.instance().store(
    "config", {"width": 8, "lr": 0.1, "hydra": {"run": {"dir": "."}, "output_subdir": None}}
)


@hydra.main(version_base=None, config_name="config")
def main(config: DictConfig) -> None:
    print(OmegaConf.to_yaml(config))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, config.width), nn.ReLU(), nn.Linear(config.width, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=config.lr)
    while True:
        optimizer.zero_grad()
        (net(torch.randn(8, 4)) ** 2).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
