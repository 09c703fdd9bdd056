"""Adam with decoupled weight decay, written out."""

import torch


class DecayedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(p)
                    state["square"] = torch.zeros_like(p)
                state["step"] += 1
                state["mean"] = beta1 * state["mean"] + (1 - beta1) * p.grad
                state["square"] = beta2 * state["square"] + (1 - beta2) * p.grad**2
                mean = state["mean"] / (1 - beta1 ** state["step"])
                square = state["square"] / (1 - beta2 ** state["step"])
                update = mean / (square.sqrt() + group["eps"])
                p.copy_(p - group["lr"] * (update + group["weight_decay"] * p))
