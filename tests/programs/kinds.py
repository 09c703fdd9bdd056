"""Small programs of many kinds, by name: how people train, evaluate, play and generate without the usual loop."""

import dataclasses
import sys

import torch
from digest import report
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, Y = torch.randn(8, 6), torch.randint(3, (8,))


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.SiLU(), nn.Linear(5, 3))


def descend(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight -= 0.1 * weight.grad
            weight.grad = None


def learn(model, optimizer, x=X, y=Y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def by_hand():
    model, losses = mlp(), []
    for _ in range(6):
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        descend(model)
        losses.append(loss.item())
    report(losses, model)


def by_data():
    """Weights are updated through `.data`, outside of any block."""
    model, losses = mlp(), []
    for _ in range(6):
        model.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        for weight in model.parameters():
            weight.data.sub_(weight.grad, alpha=0.1)
        losses.append(loss.item())
    report(losses, model)


def by_hand_loader():
    model, losses = mlp(), []
    for _ in range(2):
        for x, y in DataLoader(TensorDataset(X, Y), batch_size=2):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            descend(model)
            losses.append(loss.item())
    report(losses, model)


def own_optimizer():
    """An optimizer that is none of PyTorch's."""

    class Descent:
        def __init__(self, weights):
            self.weights = list(weights)

        @torch.no_grad()
        def step(self):
            for weight in self.weights:
                weight.add_(weight.grad, alpha=-0.1)
                weight.grad = None

    model, losses = mlp(), []
    optimizer = Descent(model.parameters())
    for _ in range(6):
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)


def tensors_only():
    first, second = torch.randn(6, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    losses = []
    for _ in range(6):
        loss = F.cross_entropy(torch.relu(X @ first) @ second, Y)
        loss.backward()
        with torch.no_grad():
            for weight in (first, second):
                weight -= 0.1 * weight.grad
                weight.grad = None
        losses.append(loss.item())
    report([*losses, first.sum(), second.sum()])


def functional_gradients():
    model, losses = mlp(), []
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def objective(weights):
        loss = F.cross_entropy(torch.func.functional_call(model, weights, (X,)), Y)
        return loss, loss

    for _ in range(6):
        gradients, loss = torch.func.grad(objective, has_aux=True)(weights)
        weights = {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}
        losses.append(loss.item())
    report([*losses, *(weight.sum() for weight in weights.values())])


def evaluated():
    """Every third step is followed by forwards in evaluation mode, without gradients and without a loader."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        losses.append(learn(model, optimizer))
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                losses += [F.cross_entropy(model(X), Y) for _ in range(2)]
            model.train()
    report(losses, model)


def evaluated_with_gradients():
    """As graph networks do: all nodes at once, and `model.eval()` is all that tells a test from a step."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        model.train()
        losses.append(learn(model, optimizer))
        model.eval()
        losses.append(float((model(X).argmax(1) == Y).float().mean()))
    report(losses, model)


def playing():
    """A policy plays without gradients, one observation after the other; a target network belongs to the step."""
    policy, target, losses = mlp(), mlp(), []
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    for _ in range(5):
        for _ in range(3):
            with torch.no_grad():
                action = int(policy(torch.randn(1, 6)).argmax())
        with torch.no_grad():
            best = target(X).max(1).values
        loss = F.mse_loss(policy(X)[:, action], best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, policy)


def taught():
    """A teacher whose weights are not trained answers first, in every step."""
    student, teacher, losses = mlp(), mlp().requires_grad_(False), []
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(5):
        loss = F.mse_loss(student(X), teacher(X))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, student)


class Measured(nn.Module):
    """Finds the size of what its convolutions give by trying them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3)
        self.second = nn.Conv2d(2, 4, 3)
        with torch.no_grad():
            size = self.features(torch.zeros(1, 1, 8, 8)).shape[1]
        self.head = nn.Linear(size, 3)

    def features(self, x):
        return torch.relu(self.second(torch.relu(self.first(x)))).flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


def dry_run():
    model, losses = Measured(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        losses.append(learn(model, optimizer, torch.randn(8, 1, 8, 8)))
    report(losses, model)


def forward_directly():
    model, losses = Measured(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        losses.append(learn(model.forward, optimizer, torch.randn(8, 1, 8, 8)))
    with torch.no_grad():
        losses += [model.forward(torch.randn(8, 1, 8, 8)).sum() for _ in range(4)]
    report(losses, model)


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 4), nn.Tanh())
        self.mean, self.spread = nn.Linear(4, 2), nn.Linear(4, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 6))

    def encode(self, x):
        hidden = self.encoder(x)
        return self.mean(hidden), self.spread(hidden)

    def decode(self, z):
        return self.decoder(z)


def methods():
    model, losses = Coder(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        mean, spread = model.encode(X)
        loss = F.mse_loss(model.decode(mean + spread.exp() * torch.randn_like(mean)), X)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        losses += [model.decode(torch.randn(8, 2)).sum() for _ in range(4)]
    report(losses, model)


class NetWithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


def named_loss():
    model, losses = NetWithLoss(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        loss = model(X, Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)


class CentreLoss(nn.Module):
    """A loss with weights of its own."""

    def __init__(self):
        super().__init__()
        self.centres = nn.Linear(3, 3)

    def forward(self, output, y):
        return F.cross_entropy(self.centres(output), y)


def loss_with_weights():
    model, criterion, losses = mlp(), CentreLoss(), []
    optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
    for _ in range(5):
        loss = criterion(model(X), Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, criterion)


def compiled_step():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="aot_eager")
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        losses.append(step(X, Y).item())
    report(losses, model)


def compiled_functional():
    """Weights are given in and come back updated; evaluated between."""
    model, losses = mlp(), []
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def compute_loss(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)

    @torch.compile(backend="aot_eager")
    def step(weights, x, y):
        gradients, loss = torch.func.grad_and_value(compute_loss)(weights, x, y)
        return {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}, loss

    @torch.compile(backend="aot_eager")
    def evaluate(weights, x):
        return torch.func.functional_call(model, weights, (x,)).argmax(-1)

    for _ in range(2):
        for _ in range(3):
            weights, loss = step(weights, X, Y)
            losses.append(loss.item())
        with torch.no_grad():
            losses.append(evaluate(weights, X).sum().item())
    model.load_state_dict(weights)
    report(losses, model)


def compiled_recurrence():
    """A state is given in and comes back changed, and nothing is trained."""
    model, state, sums = nn.Linear(6, 6), torch.zeros(8, 6), []

    @torch.compile(backend="aot_eager")
    def advance(state, x):
        return torch.tanh(model(state) + x)

    with torch.no_grad():
        for _ in range(6):
            state = advance(state, X)
            sums.append(state.sum().item())
    report(sums, model)


def compiled_update():
    """Only the optimizer is compiled."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = torch.compile(optimizer.step, backend="eager")
    for _ in range(5):
        loss = F.cross_entropy(model(X), Y)
        optimizer.zero_grad()
        loss.backward()
        update()
        losses.append(loss.item())
    report(losses, model)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9)

    def forward(self, tokens, past=None):
        hidden = self.mix(self.embed(tokens)).cumsum(1)
        hidden = hidden if past is None else hidden + past
        return self.head(hidden), hidden[:, -1:]

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            logits, _ = self(tokens)
            tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), 1)
        return tokens


def writing():
    """Two texts with a cache (a prompt of 3 and 4 tokens), two without by a method, and lengths in order, which are
    none."""
    model = Writer().eval()
    ends = []
    with torch.no_grad():
        for _ in range(2):
            logits, past = model(torch.tensor([[1, 2, 3]]))
            for _ in range(4):
                logits, past = model(logits[:, -1:].argmax(-1), past)
            ends.append(past.sum())
    ends += [model.generate(torch.tensor([[1, 2, 3]]), 5).sum() for _ in range(2)]
    with torch.no_grad():
        ends += [model(torch.ones(1, length, dtype=torch.int64))[0].sum() for length in range(2, 8)]
    report(ends, model)


def layers_by_hand():
    """No module around the layers: a function calls them."""
    first, second = nn.Linear(6, 5), nn.Linear(5, 3)

    def network(x):
        return second(torch.relu(first(x)))

    with torch.no_grad():
        outputs = [network(X).sum() for _ in range(6)]
    report(outputs, first, second)


def folds():
    """A new model and a new optimizer for each of three folds, each followed by a test of its own."""
    losses, models = [], []
    for _ in range(3):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses += [learn(model, optimizer) for _ in range(4)]
        model.eval()
        with torch.no_grad():
            losses.append(F.cross_entropy(model(X), Y).item())
        models.append(model)
    report(losses, *models)


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.second.forward(torch.relu(self.first.forward(x)))


class Doubled(Halves):
    def forward(self, x):
        return 2 * super().forward(x)


def never_called():
    """No module is ever called."""
    model, losses = Doubled(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        loss = F.cross_entropy(model.forward(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)


def accumulated():
    """A hundred backwards for every step."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(100):
            loss = F.cross_entropy(model(X), Y)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model)


def unused_optimizer():
    """An optimizer is made and never steps: weights are updated by hand."""
    model, losses = mlp(), []
    torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
    for _ in range(20):
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        descend(model)
        losses.append(loss.item())
    report(losses, model)


@dataclasses.dataclass
class Linked:
    """Knows itself."""

    x: torch.Tensor
    link: object = None


class Filtering(nn.Module):
    """Lists none of its parts, and takes any input."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 5), nn.Linear(5, 3)

    def named_modules(self, *args, **kwargs):
        raise AttributeError("not now")

    def infer(self, given):
        return self.outer(torch.relu(self.inner(given.x)))


class Reading(nn.Module):
    def forward(self, given, nested):
        return given.x.sum()


def odd():
    model, given, nested = Filtering(), Linked(X), X
    given.link = given
    for _ in range(2000):
        nested = [nested]
    with torch.inference_mode():
        weights = torch.ones(3)
        torch.optim.SGD([nn.Parameter(weights, requires_grad=False)], lr=0.1)
        ends = [model.infer(given).sum() for _ in range(4)] + [Reading()(given, nested) for _ in range(2)]
    report(ends)


globals()[sys.argv[1]]()
