"""A Wasserstein GAN with a guard against diverging weights, on one GPU."""

import argparse
import itertools

import torch
from torch import nn

device = torch.device("cuda")


def mlp(sizes, activation):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1])


class Guard:
    """Stops training when a weight or a gradient is no longer finite, or grows beyond reason."""

    def __init__(self, limit=1e4):
        self.limit = limit

    def check(self, module):
        for name, p in module.named_parameters():
            if not torch.isfinite(p).all().item():
                raise FloatingPointError(name)
            if p.grad is not None and p.grad.norm().item() > self.limit:
                raise FloatingPointError(f"gradient of {name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    w = args.width
    maker = mlp([32, w, w, w, w, w, 128], nn.ReLU).to(device)
    critic = mlp([128, w, w, w, w, w, 1], nn.LeakyReLU).to(device)
    maker_optimizer = torch.optim.RMSprop(maker.parameters(), lr=5e-5, foreach=True)
    critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5, foreach=True)
    guard = Guard()
    basis = torch.randn(4, 128, device=device)
    for step in range(args.steps):
        for _ in range(3):
            real = torch.sin(torch.randn(args.batch, 4, device=device) @ basis)
            with torch.no_grad():
                fake = maker(torch.randn(args.batch, 32, device=device))
            loss = critic(fake).mean() - critic(real).mean()
            critic_optimizer.zero_grad(set_to_none=True)
            loss.backward()
            guard.check(critic)
            critic_optimizer.step()
            with torch.no_grad():
                torch._foreach_clamp_min_(list(critic.parameters()), -0.05)
                torch._foreach_clamp_max_(list(critic.parameters()), 0.05)
        maker_loss = -critic(maker(torch.randn(args.batch, 32, device=device))).mean()
        maker_optimizer.zero_grad(set_to_none=True)
        maker_loss.backward()
        guard.check(maker)
        maker_optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: distance {-loss.item():.4f}")


if __name__ == "__main__":
    main()
