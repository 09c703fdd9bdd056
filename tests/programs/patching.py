"""A program that patches what Sonda patches: its own Module.__call__, a profile function, global hooks."""

import sys

import torch
from digest import report
from torch import nn

torch.manual_seed(0)
calls, hooked, profiled = [], [], []
before = nn.Module.__call__


def call(self, *args, **kwargs):
    calls.append(type(self).__name__)
    return before(self, *args, **kwargs)


nn.Module.__call__ = call
handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: hooked.append(type(module).__name__))
model = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
sys.setprofile(lambda frame, event, argument: profiled.append(event) if "digest" in frame.f_code.co_filename else None)
for _ in range(4):
    loss = model(torch.randn(2, 3)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
sys.setprofile(None)
report(losses, model)
print(calls, hooked, profiled)
nn.Module.__call__ = before
