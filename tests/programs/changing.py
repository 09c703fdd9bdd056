"""Small trainings whose sizes change, by name. Each prints the FLOPs of the matrix products of every step, by hand."""

import json
import random
import sys

import torch
from digest import report
from torch import nn

torch.manual_seed(0)
CHANCE = random.Random(3)
STEPS = 30


def train(weights, step, model):
    """`step()` calls backward and returns its FLOPs."""
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    flops = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        flops.append(step())
        optimizer.step()
    report(flops, model)
    print("FLOPS", json.dumps(flops))


class Attends(nn.Module):
    """A text attends to itself: two products with weights, two of the text with itself."""

    def __init__(self):
        super().__init__()
        self.inside, self.outside = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        x = self.inside(x)
        return self.outside(torch.softmax(x @ x.transpose(1, 2), -1) @ x)


def gathered():
    """Gradients of two to four texts are gathered."""
    model = Attends()

    def step():
        flops = 0
        for _ in range(CHANCE.randint(2, 4)):
            length = CHANCE.randint(10, 90)
            model(torch.randn(4, length, 64)).square().mean().backward()
            # The input needs no gradient: of three products with the first weights one is left out.
            flops += 5 * 2 * 4 * length * 64 * 64 + 6 * 2 * 4 * length**2 * 64
        return flops

    train(model.parameters(), step, model)


def images():
    """Several images of different size are looked at one by one, before one backward."""
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1))

    def step():
        flops, loss = 0, 0
        for _ in range(3):
            height, width = CHANCE.randint(12, 40), CHANCE.randint(12, 40)
            loss = loss + model(torch.randn(1, 8, height, width)).square().mean()
            flops += 2 * height * width * 9 * 16 * (2 * 8 + 3 * 16)
        loss.backward()
        return flops

    train(model.parameters(), step, model)


def elements():
    """A cell is called for every element of a text, and a head once."""
    cell, head = nn.RNNCell(32, 64), nn.Linear(64, 8)

    def step():
        length, state = CHANCE.randint(10, 30), torch.zeros(16, 64)
        for _ in range(length):
            state = cell(torch.randn(16, 32), state)
        head(state).square().mean().backward()
        # Neither the elements nor the first state need a gradient.
        return 2 * 16 * (length * 64 * (2 * 32 + 3 * 64) - 64 * 64 + 3 * 64 * 8)

    train([*cell.parameters(), *head.parameters()], step, cell)


class Reads(nn.Module):
    """Reads one text, and another that was read before: one product with weights, two of the texts with each other."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(64, 64)

    def forward(self, text, memory):
        return torch.softmax(self.inside(text) @ memory.transpose(1, 2), -1) @ memory


def translated():
    """An encoder and a decoder, called one after the other, two pairs of texts in a step; both embed theirs first."""
    embed, encoder, decoder = nn.Linear(64, 64), Attends(), Reads()

    def step():
        flops = 0
        for _ in range(2):
            source, target = CHANCE.randint(10, 90), CHANCE.randint(10, 90)
            memory = encoder(embed(torch.randn(4, source, 64)))
            decoder(embed(torch.randn(4, target, 64)), memory).square().mean().backward()
            rows, weights = 2 * 4, 64 * 64
            flops += rows * (weights * (2 * (source + target) + 6 * source + 3 * target))
            flops += rows * 64 * (6 * source**2 + 6 * source * target)
        return flops

    train([*embed.parameters(), *encoder.parameters(), *decoder.parameters()], step, decoder)


def frozen():
    """What is not trained sees images of different size; what is trained always sees the same."""
    features = nn.Sequential(nn.Conv2d(8, 32, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    features.requires_grad_(False).eval()
    head = nn.Linear(32, 8)

    def step():
        height, width = CHANCE.randint(12, 40), CHANCE.randint(12, 40)
        head(features(torch.randn(2, 8, height, width))).square().mean().backward()
        return 2 * 2 * (height * width * 9 * 8 * 32 + 2 * 32 * 8)

    train(head.parameters(), step, head)


def taught():
    """A teacher without gradients sees each of the texts that are gathered."""
    model, teacher = Attends(), Attends().eval()

    def step():
        flops = 0
        for _ in range(2):
            length = CHANCE.randint(10, 90)
            text = torch.randn(4, length, 64)
            with torch.no_grad():
                target = teacher(text)
            (model(text) - target).square().mean().backward()
            flops += 7 * 2 * 4 * length * 64 * 64 + 8 * 2 * 4 * length**2 * 64
        return flops

    train(model.parameters(), step, model)


def every_fifth():
    """Every fifth step has two batches instead of four."""
    model, at = nn.Linear(128, 64), iter(range(STEPS))

    def step():
        batches = 2 if next(at) % 5 == 4 else 4
        for _ in range(batches):
            model(torch.randn(32, 128)).square().mean().backward()
        return batches * 2 * 2 * 32 * 128 * 64

    train(model.parameters(), step, model)


class Decides(nn.Module):
    """How often its weights are used is decided by the data."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(128, 128)

    def forward(self, x):
        for _ in range(1 + int(x[0, 0] * 1000) % 4):
            x = self.again(x)
        return x


def decided():
    model = Decides()

    def step():
        flops = 0
        for _ in range(2):
            x = torch.rand(CHANCE.randint(20, 200), 128)
            model(x).square().mean().backward()
            flops += 2 * len(x) * 128 * 128 * (3 * (1 + int(x[0, 0] * 1000) % 4) - 1)
        return flops

    train(model.parameters(), step, model)


def threads():
    """The same network serves requests, each in a thread of its own, one after the other."""
    import threading

    model = nn.Linear(128, 64)

    def answer():
        with torch.no_grad():
            model(torch.randn(32, 128))

    for _ in range(40):
        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
    print("FLOPS", json.dumps([2 * 32 * 128 * 64] * 40))


globals()[sys.argv[1]]()
