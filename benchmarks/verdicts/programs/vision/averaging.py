"""Train with an exponential moving average of the weights, and keep the best of them."""

import copy

import torch
from torch import nn


class Average:
    """A slowly moving copy of a network."""

    def __init__(self, model, decay=0.99):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(list(self.shadow.parameters()), list(model.parameters()), 1 - self.decay)


class Keeper:
    """Remembers the weights with the lowest loss of training."""

    def __init__(self):
        self.loss = float("inf")
        self.weights = None

    def offer(self, loss, model, average):
        candidate = {
            "model": copy.deepcopy(model.state_dict()),
            "average": copy.deepcopy(average.shadow.state_dict()),
        }
        if loss < self.loss:
            self.loss = loss
            self.weights = candidate


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 14 * 14, 512),
        nn.ReLU(),
        nn.Linear(512, 1024),
        nn.ReLU(),
        nn.Linear(1024, 10),
    )


def main():
    torch.manual_seed(0)
    model = network()
    average = Average(model)
    keeper = Keeper()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(640, 3, 32, 32)
    labels = torch.randint(10, (640,))
    for step in range(260):
        chosen = torch.randint(640, (16,))
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        keeper.offer(loss.item(), model, average)
        if step % 30 == 0:
            print(f"step {step}: loss {loss.item():.4f}, best {keeper.loss:.4f}")


if __name__ == "__main__":
    main()
