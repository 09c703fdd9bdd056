#!/usr/bin/env python
# real / bogus classification of difference images (new, reference, difference stamps)
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=45)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--stamp", type=int, default=63)
parser.add_argument("--lr", type=float, default=3e-4)
args = parser.parse_args()

torch.manual_seed(0)


def make_stamps(n, size):
    ref = torch.randn(n, 1, size, size) * 0.3
    y = torch.randint(0, 2, (n, 1)).float()
    c = torch.linspace(-3, 3, size)
    psf = torch.exp(-(c[:, None] ** 2 + c[None, :] ** 2))
    new = ref + 0.1 * torch.randn_like(ref) + y[:, :, None, None] * psf
    return torch.cat([new, ref, new - ref], dim=1), y


model = nn.Sequential(
    nn.Conv2d(3, 8, 5, stride=2, padding=2),
    nn.ReLU(),
    nn.Conv2d(8, 24, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(24 * ((args.stamp + 1) // 2) ** 2, 512),
    nn.ReLU(),
    nn.Dropout(0.3),
    nn.Linear(512, 1),
)
opt = torch.optim.SGD(model.parameters(), lr=args.lr * 30, momentum=0.9)
bce = nn.BCEWithLogitsLoss()

x, y = make_stamps(1024, args.stamp)
model.train()
for step in range(args.steps):
    idx = torch.randint(0, len(x), (args.batch_size,))
    loss = bce(model(x[idx]), y[idx])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print("step %3d  loss %.4f" % (step, loss.item()))  # noqa: UP031
