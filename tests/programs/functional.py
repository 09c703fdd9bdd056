"""No data loader, no loss module, weights without any module at all beside one linear layer."""

import torch
from digest import report
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Linear(6, 6)
scale = torch.ones(6, requires_grad=True)
optimizer = torch.optim.Adam([*model.parameters(), scale], lr=0.01)
losses = []
for _ in range(7):
    x = torch.randn(5, 6)
    loss = F.mse_loss(torch.tanh(model(x)) * scale, x)
    model.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, model)
print(scale.tolist())
