"""Adam on master weights in the host's memory, for networks whose optimizer state would not fit the GPU."""

import torch


class HostAdam:
    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.masters = [p.detach().cpu().clone().requires_grad_() for p in self.parameters]
        self.inner = torch.optim.Adam(self.masters, lr=lr)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = parameter.grad.cpu()
        self.inner.step()
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            parameter.copy_(master)
