"""A training loop like many others. Nothing in it knows of Sonda."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = torch.rand(1024, 1, 28, 28), torch.randint(0, 10, (1024,))
loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))
optimizer = torch.optim.Adam(model.parameters())

for batch, target in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), target)
    loss.backward()
    optimizer.step()
print(f"last loss {loss.item():.3f}")
