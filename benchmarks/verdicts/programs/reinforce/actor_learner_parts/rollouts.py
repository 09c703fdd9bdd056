"""A process that plays episodes with the weights it is sent, and the client that talks to it."""

import multiprocessing
import time

import numpy as np

ENVS, HORIZON, OBS, ACTIONS = 32, 24, 32, 4


def play(weights, rng, drift):
    """Plays all environments at once for one horizon; returns observations, actions and discounted returns."""
    state = rng.standard_normal((ENVS, OBS)).astype(np.float32)
    seen, taken, rewards = [], [], []
    for _ in range(HORIZON):
        h = np.tanh(state @ weights[0].T + weights[1])
        h = np.tanh(h @ weights[2].T + weights[3])
        logits = (h @ weights[4].T + weights[5])[:, :ACTIONS]
        action = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        seen.append(state)
        taken.append(action)
        rewards.append(-np.abs(state[:, :4]).mean(axis=1))
        state = (0.9 * state + drift[action]).astype(np.float32)
    returns, total = [], np.zeros(ENVS, np.float32)
    for reward in reversed(rewards):
        total = reward + 0.95 * total
        returns.append(total)
    return np.concatenate(seen), np.concatenate(taken), np.concatenate(returns[::-1])


def serve(connection, seed):
    rng = np.random.default_rng(seed)
    drift = rng.standard_normal((ACTIONS, OBS)).astype(np.float32) * 0.2
    while (weights := connection.recv()) is not None:
        connection.send(play(weights, rng, drift))


class RolloutClient:
    def __init__(self, seed, interval=0.05):
        self.connection, other = multiprocessing.Pipe()
        self.interval = interval
        self.process = multiprocessing.Process(target=serve, args=(other, seed), daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *exception):
        self.connection.send(None)
        self.process.join()

    def collect(self, weights):
        self.connection.send(weights)
        while not self.connection.poll():
            time.sleep(self.interval)
        return self.connection.recv()
