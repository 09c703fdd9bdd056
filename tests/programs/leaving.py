"""Trains for five steps, then leaves the way its argument says."""

import os
import signal
import sys
import time

import torch
from digest import report
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(5):
    if step == 3 and sys.argv[1] in ("kill", "terminate"):
        time.sleep(0.6)  # longer than the collector keeps anything in memory
    loss = model(torch.randn(2, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, model)
sys.stdout.flush()
how = sys.argv[1]
if how == "exit":
    sys.exit(3)
if how == "raise":
    raise RuntimeError("on purpose")
if how == "hard":
    os._exit(4)
if how == "replace":
    try:
        os.execv("/nonexistent/program", ["program"])
    except FileNotFoundError:
        os.execlp("sh", "sh", "-c", "exit 6")
if how == "again":
    os.execv(sys.executable, [sys.executable, sys.argv[0], "exit"])
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "terminate":
    os.kill(os.getpid(), signal.SIGTERM)
