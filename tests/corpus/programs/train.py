"""A small network trained from a loader, evaluated without one after every ten steps."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
images, labels = torch.randn(960, 64), torch.randint(10, (960,))
for number, (image, label) in enumerate(DataLoader(TensorDataset(images, labels), batch_size=32), 1):
    loss = nn.functional.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 10 == 0:
        model.eval()
        with torch.no_grad():
            right = (model(images[:256]).argmax(1) == labels[:256]).float().mean()
        model.train()
print(f"{right:.2f} right")
