"""A small network that trains for three epochs, evaluated in the way that the argument names."""

import sys

import torch
from digest import report
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

EPOCHS = 3


class Rows(Dataset):
    """A data set of the program's own."""

    def __init__(self, count, classes=3):
        self.items = [(torch.randn(6), index % classes) for index in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Trainer:
    """Evaluates as libraries of trainers do: a loader made anew for each evaluation."""

    def __init__(self, model, train, validation):
        self.model, self.data = model, {"train": train, "validation": validation}
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.losses = []

    def train(self, every=0):
        done = 0
        for _ in range(EPOCHS):
            for x, y in DataLoader(self.data["train"], batch_size=4):
                self.model.train()
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                done += 1
                if every and done % every == 0:
                    self.evaluate()
            if not every:
                self.evaluate()

    def evaluate(self, data=None):
        self.model.eval()
        with torch.no_grad():
            for x, y in DataLoader(data or self.data["validation"], batch_size=4):
                self.losses.append(F.cross_entropy(self.model(x), y).item())


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def tensors(count):
    return TensorDataset(torch.randn(count, 6), torch.randint(3, (count,)))


def trainer(train=None, validation=None):
    return Trainer(network(), train or tensors(16), validation or tensors(8))


def every_epoch():
    trained = trainer()
    trained.train()
    return trained


def once_more():
    """The last weights are evaluated again at the end."""
    trained = trainer()
    trained.train()
    trained.evaluate()
    return trained


def and_test():
    """A test set as large as the validation set."""
    trained, test = trainer(), tensors(8)
    trained.train()
    trained.evaluate()
    trained.evaluate(test)
    return trained


def by_steps():
    """Evaluated every fifth step: the last training steps have no evaluation behind them, but the test."""
    trained, test = trainer(), tensors(8)
    trained.train(every=5)
    trained.evaluate(test)
    return trained


def own_rows():
    trained = trainer(Rows(16), Rows(8))
    trained.train()
    trained.evaluate()
    return trained


def listed():
    """A list is data too."""
    trained = trainer(validation=list(Rows(8).items))
    trained.train()
    trained.evaluate()
    return trained


def made_anew():
    """Data of each validation is made when it is needed, and gone afterwards."""
    trained = trainer()
    usual = trained.evaluate
    trained.evaluate = lambda data=None: usual(data or tensors(8))
    trained.train()
    trained.evaluate()
    return trained


def split_anew():
    """Other rows are held out in each epoch."""
    whole, losses = tensors(24), []
    model = network()
    kept = []
    for epoch in range(EPOCHS):
        parts = random_split(whole, (16, 8), torch.Generator().manual_seed(epoch))
        kept.append(parts)
        step = Trainer(model, *parts)
        for x, y in DataLoader(parts[0], batch_size=4):
            step.optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            step.optimizer.step()
        step.evaluate()
        losses += step.losses
    step.losses = losses
    return step


def whole_tensor(test=False):
    """No loader: batches are slices, the validation is one tensor."""
    trained = trainer()
    x, y, held, classes, others = (torch.randn(16, 6), torch.randint(3, (16,)), torch.randn(8, 6),
                                   torch.randint(3, (8,)), torch.randn(8, 6))  # fmt: skip

    @torch.no_grad()
    def evaluate(rows):
        trained.model.eval()
        trained.losses += [F.cross_entropy(trained.model(rows[at : at + 4]), classes[:4]).item() for at in (0, 4)]
        trained.model.train()

    for _ in range(EPOCHS):
        for at in range(0, 16, 4):
            loss = F.cross_entropy(trained.model(x[at : at + 4]), y[at : at + 4])
            trained.optimizer.zero_grad()
            loss.backward()
            trained.optimizer.step()
        evaluate(held)
    evaluate(others if test else held)
    return trained


def whole_tensor_and_test():
    return whole_tensor(test=True)


def test_only():
    """Nothing is validated: evaluated once, after the training."""
    trained = trainer()
    trained.evaluate, usual = lambda: None, trained.evaluate
    trained.train()
    usual()
    return trained


done = globals()[sys.argv[1]]()
report(done.losses, done.model)
