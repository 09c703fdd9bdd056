"""LightGCN: embeddings smoothed over the graph of users and items (GPU)."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class LightGCN(nn.Module):
    def __init__(self, users, items, width=64, layers=2):
        super().__init__()
        self.users = users
        self.table = nn.Parameter(torch.randn(users + items, width) * 0.1)
        self.layers = layers

    def forward(self, graph):
        x, total = self.table, self.table
        for _ in range(self.layers):
            x = torch.sparse.mm(graph, x)
            total = total + x
        return (total / (self.layers + 1)).split([self.users, len(self.table) - self.users])


def build_graph(users, items, pairs):
    rows = torch.cat([pairs[0], pairs[1] + users])
    columns = torch.cat([pairs[1] + users, pairs[0]])
    degree = torch.bincount(rows, minlength=users + items).clamp(min=1).float()
    values = (degree[rows] * degree[columns]).rsqrt()
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (users + items, users + items)).coalesce()


def recall(scores, liked, k=20):
    best = np.argsort(-scores, axis=1)[:, :k]
    return float((best == liked[:, None]).any(axis=1).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=1024)
    options = parser.parse_args()
    device = torch.device("cuda")
    torch.manual_seed(53)
    users, items = 6000, 4000
    pairs = torch.stack([torch.randint(users, (120_000,)), torch.randint(items, (120_000,))])
    graph = build_graph(users, items, pairs).to(device)
    pairs = pairs.to(device)
    model = LightGCN(users, items).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    history = []
    for step in range(options.steps):
        chosen = torch.randint(pairs.shape[1], (options.batch,), device=device)
        user, liked = pairs[:, chosen]
        other = torch.randint(items, (options.batch,), device=device)
        user_vectors, item_vectors = model(graph)
        mine = user_vectors[user]
        margin = (mine * (item_vectors[liked] - item_vectors[other])).sum(1)
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scores = (mine.detach() @ item_vectors.detach().T).cpu().numpy()
        history.append(recall(scores, liked.cpu().numpy()))
        if step % 20 == 19:
            print(f"step {step + 1}: recall@20 {np.mean(history[-20:]):.4f}")


if __name__ == "__main__":
    main()
