"""A small training script on a GPU as anybody would write it."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, batch_size=128, shuffle=True, pin_memory=True)
model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
opt = torch.optim.Adam(model.parameters(), 1e-3)
lossf = nn.CrossEntropyLoss()
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        opt.zero_grad()
        loss = lossf(model(x), y)
        loss.backward()
        opt.step()
    print(epoch, loss.item())
