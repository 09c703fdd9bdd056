"""Inference only. Argument: no_grad, inference_mode or grad (gradients on, and never used)."""

import sys
from contextlib import nullcontext

import torch
from digest import report
from torch import nn

how = sys.argv[1] if len(sys.argv) > 1 else "no_grad"
context = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "grad": nullcontext}[how]
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
model = nn.TransformerEncoder(layer, 2).eval()
sums = []
with context():
    for _ in range(9):
        sums.append(model(torch.randn(2, 3, 8)).sum().item())
report(sums, model)
