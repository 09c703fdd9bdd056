"""A small network behind what libraries put around networks, as the argument says; it trains and is evaluated."""

import os
import sys

import torch
import torch.distributed as dist
from digest import report
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn import functional as F
from torch.nn.parallel import DataParallel, DistributedDataParallel


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc1(x)
        for block in self.blocks:
            x = block(x)
        return self.fc2(x)

    def training_step(self, x, y):
        return F.cross_entropy(self(x), y)


class Held(nn.Module):
    """A name that is the program's own."""

    def __init__(self):
        super().__init__()
        self.module = Net()

    def forward(self, x):
        return self.module(x)


def redirected(wrapper, model, x, y):
    """A step of the model inside of its wrapper's forward: the wrapper calls the model, whose forward is the step."""
    forward = model.forward

    def step(*arguments):
        model.forward = forward
        return model.training_step(*arguments)

    model.forward = step
    return wrapper(x, y)


def in_group(make):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return make()


kind = sys.argv[1]
torch.manual_seed(0)
model = plain = Held() if kind == "own" else Net()
if kind in ("compiled", "compiled_ddp"):
    model = torch.compile(model, backend="eager")
if kind in ("ddp", "compiled_ddp", "redirected"):
    model = in_group(lambda: DistributedDataParallel(model))
if kind == "data_parallel":
    model = DataParallel(model)
if kind == "blocks":
    for number in range(2):
        model.blocks[number] = torch.compile(model.blocks[number], backend="eager")
if kind == "checkpointed":
    model.blocks = nn.ModuleList(checkpoint_wrapper(block) for block in model.blocks)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(5):
    x, y = torch.randn(4, 6), torch.randint(3, (4,))
    loss = redirected(model, plain, x, y) if kind == "redirected" else F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    # Some evaluate what they have wrapped, and not the wrapper.
    losses.append((plain if kind == "ddp" else model)(torch.randn(4, 6)).sum().item())
frames = dict(torch._dynamo.utils.counters["frames"]) if "torch._dynamo" in sys.modules else {}
breaks = len(torch._dynamo.utils.counters["graph_break"]) if frames else 0
print(sorted(frames.items()), breaks)
report(losses, plain)
if dist.is_initialized():
    dist.destroy_process_group()
