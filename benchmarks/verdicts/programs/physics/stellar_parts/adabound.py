"""Adam whose step sizes are bound by limits that close in on a final rate."""

import torch


class AdaBound(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), final_lr=0.1, gamma=1e-3, eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "final_lr": final_lr, "gamma": gamma, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros(())
                    state["mean"] = torch.zeros_like(p)
                    state["square"] = torch.zeros_like(p)
                state["step"] = state["step"] + 1
                state["mean"] = beta1 * state["mean"] + (1 - beta1) * p.grad
                state["square"] = beta2 * state["square"] + (1 - beta2) * p.grad * p.grad
                correction = torch.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
                lower = group["final_lr"] * (1 - 1 / (group["gamma"] * state["step"] + 1))
                upper = group["final_lr"] * (1 + 1 / (group["gamma"] * state["step"]))
                rate = group["lr"] * correction / (torch.sqrt(state["square"]) + group["eps"])
                rate = torch.minimum(torch.maximum(rate, lower), upper)
                p.copy_(p - rate * state["mean"])
