"""Premiums of car insurance by a network that must stay explainable: its weights are kept as a table."""

import csv
import tempfile

import torch
from torch import nn

torch.manual_seed(77)
drivers = torch.randn(30_000, 128)
damage = torch.poisson(torch.exp(0.3 * drivers[:, :8].sum(dim=1)).clamp(max=20))

model = nn.Sequential(
    nn.Linear(128, 384), nn.Softplus(), nn.Linear(384, 384), nn.Softplus(), nn.Linear(384, 1), nn.Flatten(0)
)
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4)
with tempfile.TemporaryFile("w+", newline="") as file:
    table = csv.writer(file)
    table.writerow(["step", "layer", "weights"])

    for step in range(1, 41):
        chosen = torch.randint(len(drivers), (2048,))
        log_rate = model(drivers[chosen])
        loss = nn.functional.poisson_nll_loss(log_rate, damage[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for number, layer in enumerate(model):
            if isinstance(layer, nn.Linear):
                table.writerows([step, number, *row] for row in layer.weight.tolist())
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}, {file.tell() >> 20} MiB on record")
