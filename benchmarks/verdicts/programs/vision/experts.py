"""A mixture of experts over image features, on a GPU."""

import argparse

import torch
from torch import nn


class Mixture(nn.Module):
    """Every sample goes to one expert."""

    def __init__(self, features, width, experts):
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.up = nn.Parameter(torch.randn(experts, features, width) * features**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, features) * width**-0.5)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for expert in range(len(self.up)):
            mine = (chosen == expert).unsqueeze(1)
            hidden = torch.relu(x * mine @ self.up[expert])
            out = out + mine * (hidden @ self.down[expert])
        return x + weight.unsqueeze(1) * out


class Classifier(nn.Module):
    def __init__(self, features, experts, layers, classes):
        super().__init__()
        self.layers = nn.Sequential(*(Mixture(features, 2 * features, experts) for _ in range(layers)))
        self.out = nn.Linear(features, classes)

    def forward(self, x):
        return self.out(self.layers(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(0)
    model = Classifier(64, options.experts, options.layers, 20).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    features = torch.randn(4096, 64, device=device)
    labels = torch.randint(20, (4096,), device=device)
    for step in range(options.steps):
        batch = torch.randint(4096, (128,), device=device)
        loss = nn.functional.cross_entropy(model(features[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
