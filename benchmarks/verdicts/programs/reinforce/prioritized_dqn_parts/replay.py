"""Replay memory whose samples are drawn in proportion to their last error."""

import random

import numpy as np
import torch


class PrioritizedReplay:
    def __init__(self, capacity, width, rng, alpha=0.6, beta=0.4):
        self.capacity, self.alpha, self.beta, self.rng = capacity, alpha, beta, rng
        self.obs = np.zeros((capacity, width), np.float32)
        self.following = np.zeros((capacity, width), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.tree = [0.0] * (2 * capacity)
        self.largest = 1.0
        self.position = self.size = 0

    def add(self, obs, actions, reward, following):
        where = (self.position + np.arange(len(obs))) % self.capacity
        self.obs[where], self.following[where] = obs, following
        self.actions[where], self.reward[where] = actions, reward
        self._assign(where, np.full(len(where), self.largest))
        self.position = int(where[-1] + 1) % self.capacity
        self.size = min(self.size + len(where), self.capacity)

    def _assign(self, where, priorities):
        for leaf, priority in zip(where.tolist(), priorities.tolist(), strict=True):
            node = leaf + self.capacity
            change = priority - self.tree[node]
            while node >= 1:
                self.tree[node] += change
                node //= 2

    def _find(self, mass):
        node = 1
        while node < self.capacity:
            node *= 2
            if mass > self.tree[node]:
                mass -= self.tree[node]
                node += 1
        return node - self.capacity

    def sample(self, count):
        share = self.tree[1] / count
        index = np.array([self._find((i + random.random()) * share) for i in range(count)])
        index = np.minimum(index, self.size - 1)
        chance = np.array([self.tree[i + self.capacity] for i in index]) / self.tree[1]
        weights = (self.size * np.maximum(chance, 1e-9)) ** -self.beta
        weights = torch.from_numpy((weights / weights.max()).astype(np.float32))
        rows = (self.obs[index], self.actions[index], self.reward[index], self.following[index])
        return index, weights, tuple(torch.from_numpy(row) for row in rows)

    def update(self, index, errors):
        priorities = (errors.astype(np.float64) + 1e-3) ** self.alpha
        self.largest = max(self.largest, float(priorities.max()))
        self._assign(index, priorities)
