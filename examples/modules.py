"""A model of plain torch modules, six equal blocks, and eight steps, with no range of its own; --train goes back too.

fiprof profile --torch-modules -- python3 examples/modules.py
"""

import sys

import torch
from torch import Tensor, nn

BLOCKS, STEPS, SIDE = 6, 8, 1024


class Block(nn.Module):  # type: ignore[misc]
    """What a transformer's layer does without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(SIDE)
        self.up, self.act, self.down = nn.Linear(SIDE, 4 * SIDE), nn.GELU(), nn.Linear(4 * SIDE, SIDE)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Model(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, SIDE)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(SIDE, 1000)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    model, train = Model().cuda(), "--train" in sys.argv
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(1000, (256,), device="cuda")
    with torch.set_grad_enabled(train):
        for _ in range(STEPS):
            found = model(tokens)
            if train:
                optimizer.zero_grad()
                nn.functional.cross_entropy(found, tokens).backward()
                optimizer.step()
            print(found[0, 0].item())


if __name__ == "__main__":
    main()
