"""Exceptions in the middle of a forward, of a backward and of an optimizer's step, caught; training goes on."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Picky(nn.Module):
    def forward(self, x):
        if x.sum() > 100:
            raise ValueError("too much")
        return x


class Fuse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, blow):
        ctx.blow = blow
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.blow:
            raise RuntimeError("blown")
        return gradient, None


model = nn.Sequential(nn.Linear(4, 4), Picky(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []


def closure():
    raise KeyError("closure")


for step in range(8):
    x = torch.ones(2, 4) * (1000 if step == 2 else 1)
    model[0].weight.data.abs_()
    optimizer.zero_grad()
    try:
        loss = Fuse.apply(model(x), step == 4).mean()
        loss.backward()
        if step == 6:
            optimizer.step(closure)
        optimizer.step()
        losses.append(loss.item())
    except (ValueError, RuntimeError, KeyError) as error:
        print(step, type(error).__name__, error)
report(losses, model)
