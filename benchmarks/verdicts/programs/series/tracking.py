"""Follow a target through noisy positions with a Kalman filter whose update is compiled."""

import torch


class Filter:
    """Position and velocity in the plane, observed as positions."""

    def __init__(self, interval=0.1):
        self.motion = torch.eye(4) + torch.diag(torch.full((2,), interval), 2)
        self.observe = torch.eye(2, 4)
        self.drift = 0.01 * torch.eye(4)
        self.noise = 0.25 * torch.eye(2)
        self.step = torch.compile(self.update, backend="aot_eager")

    def check(self, value):
        if not torch.isfinite(value).all():
            raise ValueError("the filter diverged")
        return value

    def update(self, state, spread, seen):
        state = self.check(self.motion @ state)
        spread = self.check(self.motion @ spread @ self.motion.T + self.drift)
        error = self.check(seen - self.observe @ state)
        expected = self.check(self.observe @ spread @ self.observe.T + self.noise)
        gain = self.check(spread @ self.observe.T @ torch.linalg.inv(expected))
        state = self.check(state + gain @ error)
        spread = self.check(spread - gain @ self.observe @ spread)
        return state, spread


def flight(length, generator):
    """Positions of one flight, and what was seen of them."""
    velocity = torch.randn(2, generator=generator) + 0.1 * torch.randn(length, 2, generator=generator).cumsum(0)
    position = 0.1 * velocity.cumsum(0)
    return position, position + 0.5 * torch.randn(length, 2, generator=generator)


def follow(kalman, seen):
    state = torch.zeros(4)
    spread = 10 * torch.eye(4)
    estimates = []
    for observation in seen:
        state, spread = kalman.step(state, spread, observation)
        estimates.append(state[:2])
    return torch.stack(estimates)


@torch.no_grad()
def main(flights=80, length=40):
    generator = torch.Generator().manual_seed(0)
    kalman = Filter()
    errors = []
    for number in range(flights):
        position, seen = flight(length, generator)
        errors.append((follow(kalman, seen) - position).norm(dim=1).mean())
        if number % 20 == 19:
            print(f"flight {number + 1}: mean error {torch.stack(errors).mean().item():.3f}")


if __name__ == "__main__":
    main()
