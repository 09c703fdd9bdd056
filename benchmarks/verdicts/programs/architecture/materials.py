"""Creep of concrete: constants of its law, found by evolution over a compiled formula."""

import torch


@torch.compiler.disable
def ripeness(age, humidity, law):
    """How far the concrete has matured and dried."""
    matured = torch.exp(law[0] * (1 - (28 / (age + 1)).sqrt()))
    dryness = 1 + (1 - humidity) / (0.46 * (1 + law[1].square()) * (1 + 0.1 * humidity).sqrt())
    ratio = age / (age + 300 * (1 + law[2].square()))
    held = 1 - 0.2 * torch.sigmoid(law[5] * (humidity - 0.6)) * torch.exp(-age / 90)
    return matured * dryness * held * torch.sqrt(ratio * torch.sqrt(ratio))


@torch.compile
def misfit(age, stress, humidity, measured, law):
    flow = ripeness(age, humidity, law) * stress
    strain = flow * (1 + law[3] * torch.tanh(flow)) + 0.01 * law[4] * torch.log1p(age)
    return (strain - measured).square().mean()


def laboratory(samples):
    age, stress, humidity = 700 * torch.rand(samples), torch.rand(samples), torch.rand(samples)
    strain = stress * (1 + torch.log1p(age) / 7) * (1.6 - humidity)
    return age, stress, humidity, strain + 0.02 * torch.randn(samples)


def main(generations=40, children=8, samples=2_500_000):
    torch.manual_seed(44)
    tests = laboratory(samples)
    mean, spread = torch.zeros(6), 0.4
    for generation in range(generations):
        laws = mean + spread * torch.randn(children, 6)
        errors = torch.stack([misfit(*tests, law) for law in laws])
        mean = laws[errors.argsort()[:2]].mean(dim=0)
        spread *= 0.9
        if generation % 10 == 9:
            print(f"generation {generation + 1}: error {errors.min().item():.6f}")


main()
