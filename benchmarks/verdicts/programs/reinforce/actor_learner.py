"""Actor-critic with a rollout process: the learner sends weights, the actor answers with trajectories."""

import multiprocessing

import numpy as np
import torch
from actor_learner_parts.rollouts import RolloutClient
from torch import nn


def make_policy(obs=32, actions=4, width=128):
    return nn.Sequential(
        nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, actions + 1)
    )


def learn(policy, optimizer, obs, actions, returns, epochs=2):
    for _ in range(epochs):
        out = policy(obs)
        choice = torch.distributions.Categorical(logits=out[:, :-1])
        gain = returns - out[:, -1]
        loss = -(choice.log_prob(actions) * gain.detach()).mean() + 0.5 * gain.square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss


def main():
    torch.manual_seed(0)
    policy = make_policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    with RolloutClient(seed=1) as rollouts:
        for step in range(100):
            weights = [p.detach().numpy() for p in policy.parameters()]
            obs, actions, returns = rollouts.collect(weights)
            returns = (returns - returns.mean()) / (returns.std() + 1e-6)
            loss = learn(
                policy,
                optimizer,
                torch.from_numpy(obs),
                torch.from_numpy(actions),
                torch.from_numpy(returns.astype(np.float32)),
            )
            if step % 25 == 24:
                print(f"update {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
