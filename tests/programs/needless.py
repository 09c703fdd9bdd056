"""Programs that do something needless, one for each name; each prints a digest of what it trained.

Lines that a test asks for end with the comment `# here`.
"""

import sys

import torch
from torch import nn

STEPS = 6


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = network(), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.body(x))  # here


class Twice(Parts):
    def forward(self, x):
        return self.head(self.body(x)) + self.head(self.body(x))  # here


class Noisy(Parts):
    def forward(self, x):
        return self.head(self.body(nn.functional.dropout(x, 0.5)))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(4000, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.table(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.states, self.head = nn.LSTM(8, 4, num_layers=2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.states(x)[0])


def train(model, weights, batch=5, loss_of=None, make=None, rate=0.1):
    optimizer = torch.optim.SGD(weights, lr=rate)
    for _ in range(STEPS):
        x = make() if make else torch.randn(batch, 8)
        loss = loss_of(model, x) if loss_of else model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def frozen():
    model = Parts()
    return train(model, model.head.parameters())


def target():
    model, other = Parts(), Parts()

    def loss_of(model, x):
        return (model(x) - other(x).detach()).pow(2).mean()  # here

    return train(model, model.parameters(), loss_of=loss_of)


def again():
    model = Parts()

    def loss_of(model, x):
        loss = model(x).pow(2).mean()
        model(x.clone()).argmax(1)  # here
        return loss

    return train(model, model.parameters(), loss_of=loss_of)


def through_a_helper():
    model = Parts()

    def score(x):
        return model(x)

    def loss_of(model, x):
        return score(x).pow(2).mean() + score(x).abs().mean().detach()

    def worst(model, x):
        loss = loss_of(model, x)
        score(x).argmax(1)  # here
        return loss

    return train(model, model.parameters(), loss_of=worst)


def inside():
    model = Twice()
    return train(model, model.parameters())


def noisy():
    model = Noisy()
    return train(model, model.parameters(), loss_of=lambda model, x: (model(x) - model(x)).pow(2).mean())


def double():
    model = Parts().double()
    return train(model, model.parameters(), make=lambda: torch.randn(5, 8, dtype=torch.float64))


def table():
    model = Table()
    return train(model, model.parameters(), make=lambda: torch.randint(0, 4000, (3,)))


def outside():
    model = Parts()

    def loss_of(model, x):
        total = 0
        for row in model(x):
            total = total + row.square().sum()  # here
        return total.clone()

    return train(model, model.parameters(), batch=30, loss_of=loss_of)


def two_networks():
    maker, judge = network(), nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (judge, maker)]
    for _ in range(STEPS):
        for number, optimizer in enumerate(optimizers):
            loss = judge(maker(torch.randn(5, 8))).mean() * (-1) ** number
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return maker


def subnormal():
    model = Parts()

    def loss_of(model, x):
        small = torch.full((200_000,), 1e-40)
        return model(x).pow(2).mean() + small.sqrt().sum()  # here

    return train(model, model.parameters(), loss_of=loss_of)


def underflowing():
    model = Parts()

    def loss_of(model, x):
        far = torch.tensor([-0.5, -95.0]).repeat(1000, 200)
        near = far.exp()  # here
        return model(x).pow(2).mean() + (near @ torch.ones(400, 400)).mean() / 1e6

    return train(model, model.parameters(), loss_of=loss_of)


def recurrent():
    model = Recurrent()
    return train(model, model.parameters(), make=lambda: torch.randn(2, 40, 8))


def validated():
    """After each step the model is validated in inference mode, before which its last operations lie in no phase."""
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss = model(torch.randn(5, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.inference_mode():
            score = model(torch.randn(5, 8)).mean()
            with torch.inference_mode(False):
                weights = [weight.detach().clone() for weight in model.parameters()]
            score += sum(weight.sum() for weight in weights)
        assert torch.randint(9, (3,)).max() < 9 and not weights[0].is_inference() and score.is_inference()
    return model


def good():
    model = Parts()
    return train(model, model.parameters())


torch.manual_seed(0)
trained = globals()[sys.argv[1]]()
print(*[weight.detach().double().sum().item().hex() for weight in trained.parameters()])
