"""A custom autograd function, a gradient taken inside a module's forward, a double backward over a kept graph, vmap."""

import torch
from digest import report
from torch import nn

torch.manual_seed(0)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradient


class Cubed(nn.Module):
    def forward(self, x):
        return Cube.apply(x)


class Energy(nn.Module):
    """Returns the force: the gradient of its own energy."""

    def __init__(self):
        super().__init__()
        self.potential = nn.Sequential(nn.Linear(3, 4), Cubed(), nn.Linear(4, 1))

    def forward(self, x):
        x = x.requires_grad_()
        energy = self.potential(x).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]


model = Energy()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for _ in range(5):
    force = model(torch.randn(4, 3))
    loss = force.square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = dict(model.potential[0].named_parameters())


def one(parameters, x):
    return torch.func.functional_call(model.potential[0], parameters, (x,)).square().sum()


per_sample = torch.func.vmap(torch.func.grad(one), (None, 0))(weights, torch.randn(3, 3))
losses += [gradient.sum().item() for gradient in per_sample.values()]
report(losses, model)
