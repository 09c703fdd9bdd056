"""Classification of products from co-purchases on one GPU, with our own mixed-memory update of the weights."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda")


class CoPurchase(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, classes)

    def forward(self, x, neighbours):
        for layer in self.layers:
            x = F.relu(layer(x + x[neighbours].mean(dim=1)))
        return self.head(x)


class Updater:
    """Master weights and moments live where memory is plentiful; the model gets the result."""

    def __init__(self, model, lr):
        self.model = model
        self.master = [p.detach().cpu().clone() for p in model.parameters()]
        self.adam = torch.optim.AdamW(self.master, lr=lr)

    def apply(self):
        for master, p in zip(self.master, self.model.parameters(), strict=True):
            master.grad = p.grad.cpu()
        self.adam.step()
        with torch.no_grad():
            for master, p in zip(self.master, self.model.parameters(), strict=True):
                p.copy_(master)
                p.grad = None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    label = torch.randint(40, (args.nodes,), device=device)
    x = torch.randn(40, 128, device=device)[label] + torch.randn(args.nodes, 128, device=device)
    neighbours = torch.randint(args.nodes, (args.nodes, 4), device=device)
    model = CoPurchase(128, args.width, 40).to(device)
    updater = Updater(model, lr=1e-3)
    for step in range(args.steps):
        loss = F.cross_entropy(model(x, neighbours), label)
        loss.backward()
        updater.apply()
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
