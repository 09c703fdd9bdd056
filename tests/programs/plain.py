"""The loop of every tutorial: two epochs of five batches, then the weights."""

import torch
from digest import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(3, (20,))), batch_size=4, shuffle=True)
losses = []
for _ in range(2):
    for inputs, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
report(losses, model)
