"""Training in a thread of its own: how often PyTorch is asked there for the number of its threads, and the bits.

The first question in a thread decides with how many threads it computes from then on.
"""

import threading

import torch
from digest import report
from torch import nn

torch.set_num_threads(1)
asked = []
answer = torch.get_num_threads


def ask():
    asked.append(threading.current_thread() is threading.main_thread())
    return answer()


torch.get_num_threads = ask
generator = torch.Generator().manual_seed(3)
model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 1))
for weight in model.parameters():
    weight.data.copy_(torch.randn(weight.shape, generator=generator) * 0.1)
losses = []


def train():
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(100):
        x = torch.randn(4 + step % 3, 16, generator=generator)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


thread = threading.Thread(target=train)
thread.start()
thread.join()
print("asked outside of the main thread:", asked.count(False))
report(losses, model)
