"""Evolution strategies: a population of perturbed policies is rolled out in threads, and the centre moves."""

from concurrent.futures import ThreadPoolExecutor

import torch

torch.manual_seed(5)
OBS, WIDTH, ACTIONS = 96, 192, 12
POPULATION, SIGMA, LR = 16, 0.05, 0.02
EPISODES, HORIZON = 256, 6
WORKERS = 16

shapes = [(OBS, WIDTH), (WIDTH, WIDTH), (WIDTH, ACTIONS)]
sizes = [a * b for a, b in shapes]
centre = torch.cat([torch.randn(a * b) / a**0.5 for a, b in shapes])
dynamics = torch.eye(OBS) * 0.95 + torch.randn(OBS, OBS) * 0.01
control = torch.randn(ACTIONS, OBS) * 0.1
starts = torch.randn(EPISODES, OBS)


@torch.no_grad()
def fitness(theta):
    layers = [part.view(shape) for part, shape in zip(theta.split(sizes), shapes, strict=True)]
    state, total = starts, 0.0
    for _ in range(HORIZON):
        h = torch.tanh(state @ layers[0])
        h = torch.tanh(h @ layers[1])
        action = torch.tanh(h @ layers[2])
        state = state @ dynamics + action @ control
        total = total - state.square().mean()
    return total


with ThreadPoolExecutor(WORKERS) as pool:
    for generation in range(60):
        noise = torch.randn(POPULATION // 2, centre.numel())
        noise = torch.cat([noise, -noise])
        scores = torch.stack(list(pool.map(fitness, centre + SIGMA * noise)))
        ranks = scores.argsort().argsort().float() / (POPULATION - 1) - 0.5
        centre += LR / (POPULATION * SIGMA) * (ranks @ noise)
        if generation % 10 == 9:
            print(f"generation {generation + 1}: best {scores.max().item():.3f} mean {scores.mean().item():.3f}")
