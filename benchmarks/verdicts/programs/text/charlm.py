"""Character language model with a gated recurrent network of its own."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class MinimalGate(nn.Module):
    """Minimal gated unit whose forget gates are decided block by block."""

    def __init__(self, inputs, hidden, blocks):
        super().__init__()
        self.hidden = hidden
        self.size = hidden // blocks
        self.weight_f = nn.ParameterList([nn.Parameter(torch.randn(inputs, self.size) * 0.1) for _ in range(blocks)])
        self.weight_c = nn.ParameterList([nn.Parameter(torch.randn(inputs, self.size) * 0.1) for _ in range(blocks)])
        self.loop = nn.Parameter(torch.randn(blocks, self.size, self.size) * 0.1)
        self.bias = nn.Parameter(torch.zeros(blocks, self.size))

    def forward(self, inputs):
        steps = []
        state = inputs.new_zeros(inputs.shape[0], self.hidden)
        for t in range(inputs.shape[1]):
            x = inputs[:, t]
            parts = []
            for b, part in enumerate(state.split(self.size, dim=1)):
                forget = torch.sigmoid(x @ self.weight_f[b] + part @ self.loop[b] + self.bias[b])
                candidate = torch.tanh(x @ self.weight_c[b] + (forget * part) @ self.loop[b])
                parts.append((1 - forget) * part + forget * candidate)
            state = torch.cat(parts, dim=1)
            steps.append(state)
        return torch.stack(steps, dim=1)


class CharModel(nn.Module):
    def __init__(self, characters, hidden=128, blocks=8):
        super().__init__()
        self.embedding = nn.Embedding(characters, 32)
        self.cell = MinimalGate(32, hidden, blocks)
        self.head = nn.Linear(hidden, characters)

    def forward(self, text):
        return self.head(self.cell(self.embedding(text)))


def batches(text, batch, length, steps, generator):
    for _ in range(steps):
        starts = torch.randint(len(text) - length - 1, (batch, 1), generator=generator)
        window = text[starts + torch.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--batch", type=int, default=24)
    options = parser.parse_args()
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    text = torch.randint(0, 60, (50_000,), generator=generator).cumsum(0) % 60
    model = CharModel(60)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for step, (x, y) in enumerate(batches(text, options.batch, options.length, options.steps, generator)):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
