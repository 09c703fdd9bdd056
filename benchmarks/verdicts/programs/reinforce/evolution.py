"""Evolution strategies: a pool of processes rolls out perturbed policies, and the centre moves."""

import multiprocessing

import torch

OBS, WIDTH, ACTIONS = 96, 192, 12
POPULATION, SIGMA, LR = 16, 0.05, 0.02
EPISODES, HORIZON = 256, 6

SHAPES = [(OBS, WIDTH), (WIDTH, WIDTH), (WIDTH, ACTIONS)]
SIZES = [a * b for a, b in SHAPES]


class World:
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.dynamics = torch.eye(OBS) * 0.95 + torch.randn(OBS, OBS, generator=generator) * 0.01
        self.control = torch.randn(ACTIONS, OBS, generator=generator) * 0.1
        self.starts = torch.randn(EPISODES, OBS, generator=generator)


world = World(seed=5)


@torch.no_grad()
def fitness(theta):
    theta = torch.from_numpy(theta)
    layers = [part.view(shape) for part, shape in zip(theta.split(SIZES), SHAPES, strict=True)]
    state, total = world.starts, 0.0
    for _ in range(HORIZON):
        h = torch.tanh(state @ layers[0])
        h = torch.tanh(h @ layers[1])
        action = torch.tanh(h @ layers[2])
        state = state @ world.dynamics + action @ world.control
        total = total - state.square().mean()
    return total.item()


def start_worker(seed):
    torch.manual_seed(seed)
    torch.set_num_threads(16)


def main():
    context = multiprocessing.get_context("fork")
    with context.Pool(2, initializer=start_worker, initargs=(5,)) as pool:
        torch.manual_seed(5)
        centre = torch.cat([torch.randn(a * b) / a**0.5 for a, b in SHAPES])
        for generation in range(40):
            noise = torch.randn(POPULATION // 2, centre.numel())
            noise = torch.cat([noise, -noise])
            scores = torch.tensor(pool.map(fitness, (centre + SIGMA * noise).numpy(), chunksize=1))
            ranks = scores.argsort().argsort().float() / (POPULATION - 1) - 0.5
            centre += LR / (POPULATION * SIGMA) * (ranks @ noise)
            if generation % 10 == 9:
                print(f"generation {generation + 1}: best {scores.max().item():.3f} mean {scores.mean().item():.3f}")


if __name__ == "__main__":
    main()
