"""A convolutional closure for plasma moments in three dimensions, on one GPU."""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


@contextlib.contextmanager
def lean_memory():
    """Leaves room for the other codes that share the card."""
    try:
        yield
    finally:
        torch.cuda.empty_cache()


class Closure(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.enter = nn.Conv3d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv3d(width, width, 3, padding=1) for _ in range(depth))
        self.leave = nn.Conv3d(width, 1, 1)

    def forward(self, x):
        h = self.enter(x)
        for block in self.blocks:
            with lean_memory():
                h = h + F.gelu(block(h))
        return self.leave(h).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Closure().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        with lean_memory():
            moments = torch.randn(args.batch, 4, args.size, args.size, args.size, device=device)
            wanted = moments[:, 0] * moments[:, 1] - 0.3 * moments[:, 2].square()
            loss = F.mse_loss(model(moments), wanted)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
