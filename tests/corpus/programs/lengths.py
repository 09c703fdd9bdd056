"""Sequences of many lengths: every step has a shape of its own."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    loss = model(torch.randn(4, 8 + 3 * step, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
