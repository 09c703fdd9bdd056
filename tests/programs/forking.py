"""Trains in processes that this one forks. Argument: how they are made and how they end."""

import concurrent.futures
import multiprocessing
import os
import signal
import sys
import time

import torch
import torch.multiprocessing
from digest import report
from torch import nn
from torch.utils.data import DataLoader, Dataset

FORK = multiprocessing.get_context("fork")


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def train(steps, seed=0, model=None):
    """So many steps; the sum of all weights."""
    torch.manual_seed(seed)
    model = model or network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(3, (4,))).backward()
        optimizer.step()
    return sum(weight.sum().item() for weight in model.parameters())


def answer(messages, steps, seed):
    messages.put((seed, train(steps, seed)))


def answer_and_go_on(connection):
    connection.send(train(5))
    while True:
        train(1)


def fork_to(work):
    """Have a child do it and print what comes of it; its exit code."""
    child = os.fork()
    if not child:
        print(work(), flush=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pool():
    with FORK.Pool(2) as workers:  # which ends them as soon as their results are there
        return workers.starmap(train, [(5, seed) for seed in range(4)], chunksize=2)


def queue():
    messages = FORK.Queue()
    workers = [FORK.Process(target=answer, args=(messages, 4 + seed, seed)) for seed in range(2)]
    for worker in workers:
        worker.start()
    answers = sorted(messages.get() for _ in workers)
    for worker in workers:
        worker.join()
    return [*answers, *(worker.exitcode for worker in workers)]


def executor():
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=FORK) as workers:
        return list(workers.map(train, (4, 6)))


def hogwild():
    model = network().share_memory()
    workers = [torch.multiprocessing.get_context("fork").Process(target=train, args=(4, 0, model)) for _ in range(2)]
    for worker in workers:
        worker.start()
        worker.join()
    return [worker.exitcode for worker in workers] + [weight.sum().item() for weight in model.parameters()]


def by_hand():
    child = os.fork()
    if not child:
        print(train(4), flush=True)
        sys.exit(5)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), fork_to(lambda: train(3)), train(2)]


def nested():
    def outer():
        fork_to(lambda: train(4))
        return train(3)

    return [fork_to(outer), train(2)]


class Forking(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)
        self.codes = []

    def forward(self, x):
        if len(self.codes) < 2:  # the first forward is counted
            self.codes.append(fork_to(lambda: train(4)))
        return self.inner(x)


def inside():
    model = Forking()
    return [train(3, model=model), *model.codes]


def preloaded():
    """Servers that are forked from a process which has the model; each is asked, and told to end."""
    model = network().eval()
    answers = []
    for _ in range(2):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            with torch.no_grad():
                for _ in range(6):
                    result = model(torch.ones(2, 8))
            os.write(writing, f"{result.sum().item()}".encode())
            while True:
                time.sleep(1)
        answers.append(os.read(reading, 100).decode())
        os.kill(child, signal.SIGTERM)
        answers.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return answers


def daemon():
    """Ended with its parent, in the middle of what it does."""
    reading, writing = FORK.Pipe(False)
    FORK.Process(target=answer_and_go_on, args=(writing,), daemon=True).start()
    return [reading.recv()]


def killed():
    reading, writing = FORK.Pipe(False)
    worker = FORK.Process(target=answer_and_go_on, args=(writing,))
    worker.start()
    result = reading.recv()
    worker.kill()
    worker.join()
    return [result, worker.exitcode]


def idle():
    """Children that never run the framework, whatever they inherit of it; one replaces itself."""
    train(2)
    worker = FORK.Process(target=time.sleep, args=(0.01,))
    worker.start()
    worker.join()
    return [worker.exitcode, fork_to(lambda: os.execv("/bin/true", ["true"])), train(1)]


class Mixed(Dataset):
    def __init__(self):
        self.mix = nn.Linear(8, 8).requires_grad_(False)

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.mix(torch.full((8,), float(index)))


def loaded(loader):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for inputs in loader:
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()
    return model[0].weight.sum().item()


def loading():
    """A child that trains on what workers of its own load with modules."""
    return [fork_to(lambda: loaded(DataLoader(Mixed(), batch_size=4, num_workers=2, multiprocessing_context=FORK)))]


if __name__ == "__main__":
    torch.manual_seed(0)
    ways = (pool, queue, executor, hogwild, by_hand, nested, inside, preloaded, daemon, killed, idle, loading)
    answers = {way.__name__: way for way in ways}[sys.argv[1]]()
    report([float(answer if not isinstance(answer, tuple) else answer[1]) for answer in answers], nn.Linear(1, 1))
