"""Growth of plankton-eating fish in lakes: rates from a network, populations from an equation stepped in time."""

import torch
from torch import nn

DAYS = 40
SPECIES = 12


def surroundings(lakes):
    return torch.randn(lakes, DAYS, 96)


def make_rates(width=768):
    return nn.Sequential(
        nn.Linear(96, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, SPECIES), nn.Softplus()
    )


def integrate(start, rates, rivalry, dt=0.1):
    population, path = start, []
    for day in range(DAYS):
        growth = rates.select(-2, day) - population @ rivalry
        population = population * torch.exp(dt * growth)
        path.append(population)
    return torch.stack(path, dim=-2)


def simulate(start, rates, rivalry):
    return torch.stack([integrate(start[lake], rates[lake], rivalry) for lake in range(len(start))])


torch.manual_seed(8)
network = make_rates()
rivalry = nn.Parameter(torch.eye(SPECIES) + 0.05 * torch.rand(SPECIES, SPECIES))
optimizer = torch.optim.Adam([*network.parameters(), rivalry], lr=1e-3)
truth, strife = make_rates(64), torch.eye(SPECIES) + 0.1 * torch.rand(SPECIES, SPECIES)
for season in range(50):
    weather = surroundings(32)
    start = 0.5 + torch.rand(32, SPECIES)
    with torch.no_grad():
        counted = integrate(start, truth(weather), strife)
    path = simulate(start, network(weather), rivalry)
    loss = (path.log() - counted.log()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if season % 10 == 9:
        print(f"season {season + 1}: {loss.item():.5f}")
