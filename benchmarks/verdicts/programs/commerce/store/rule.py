"""How weights of the stores move."""

import torch


class Decoupled:
    """Adaptive moments with weight decay apart from the gradient."""

    def __init__(self, parameters, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        self.weights = list(parameters)
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self.first = [torch.zeros_like(weight) for weight in self.weights]
        self.second = [torch.zeros_like(weight) for weight in self.weights]
        self.count = 0

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        one, two = self.betas
        for weight, first, second in zip(self.weights, self.first, self.second, strict=True):
            first.mul_(one).add_(weight.grad, alpha=1 - one)
            second.mul_(two).addcmul_(weight.grad, weight.grad, value=1 - two)
            mean = first / (1 - one**self.count)
            spread = (second / (1 - two**self.count)).sqrt().add_(self.eps)
            weight.mul_(1 - self.lr * self.weight_decay)
            weight.addcdiv_(mean, spread, value=-self.lr)
