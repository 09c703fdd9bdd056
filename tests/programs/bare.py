"""A training without modules; it prints a digest of its weights, and the products of a step."""

import torch

SAMPLES, INPUTS, WIDTH = 32, 24, 48
STEPS = 6

torch.manual_seed(0)
first = torch.randn(INPUTS, WIDTH).requires_grad_()
second = torch.randn(WIDTH, 1).requires_grad_()
optimizer = torch.optim.SGD([first, second], lr=1e-4)
for _ in range(STEPS):
    x = torch.randn(SAMPLES, INPUTS)
    loss = ((torch.relu(x @ first) @ second) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(first.sum().item().hex(), second.sum().item().hex())
