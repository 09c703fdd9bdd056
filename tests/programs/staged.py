"""Imports, prepares, trains, saves, imports late and leaves late: 0.2 s each at least. Prints what it sees."""

import atexit
import inspect
import os
import pickle
import sys
import time

sys.path.insert(0, sys.argv[1])
import slow_to_import  # noqa: F401
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, target = torch.randn(16, 8), torch.randint(0, 2, (16,))
time.sleep(0.2)


class Slow:
    def __reduce__(self):
        time.sleep(0.2)
        return (list, ())


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
    return loss.item()


def leave():
    time.sleep(0.2)


atexit.register(leave)
path = os.path.join(sys.argv[1], "weights.pt")
print([step() for _ in range(5)])
torch.save({"model": model.state_dict(), "slow": Slow()}, path)
print(step(), sorted(torch.load(path, weights_only=False)))


def late():
    import slow_as_well

    return slow_as_well.__name__


print(late(), step())
print(torch.save is torch.serialization.save, pickle.loads(pickle.dumps(torch.load)) is torch.load)
print(inspect.signature(torch.save), torch.save.__name__, torch.save.__module__, (torch.load.__doc__ or "")[:20])
try:
    torch.load(os.path.join(sys.argv[1], "nowhere.pt"))
except FileNotFoundError as error:
    print(error.filename is not None)
