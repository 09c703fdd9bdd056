"""Node classification with mean aggregation over the neighbours."""

import torch
import torch.nn.functional as F
from torch import nn


class Graph:
    def __init__(self, nodes=1200, degree=8, features=64, classes=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.label = torch.randint(classes, (nodes,), generator=generator)
        order = self.label.argsort()
        self.neighbours = torch.empty(nodes, degree, dtype=torch.long)
        near = torch.randint(-60, 60, (nodes, degree), generator=generator)
        self.neighbours[order] = order[(torch.arange(nodes)[:, None] + near) % nodes]
        centre = torch.randn(classes, features, generator=generator)
        self.x = centre[self.label] + 2 * torch.randn(nodes, features, generator=generator)


class SageLayer(nn.Module):
    def __init__(self, inward, outward):
        super().__init__()
        self.own = nn.Linear(inward, outward)
        self.around = nn.Linear(inward, outward, bias=False)

    def forward(self, x, neighbours):
        gathered = torch.stack([x[nodes].mean(dim=0) for nodes in neighbours])
        return self.own(x) + self.around(gathered)


class Sage(nn.Module):
    def __init__(self, features=64, width=96, classes=6):
        super().__init__()
        self.first = SageLayer(features, width)
        self.second = SageLayer(width, classes)

    def forward(self, graph):
        return self.second(F.relu(self.first(graph.x, graph.neighbours)), graph.neighbours)


graph = Graph()
torch.manual_seed(0)
model = Sage()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
known = torch.rand(len(graph.x)) < 0.5
for epoch in range(40):
    model.train()
    logits = model(graph)
    loss = F.cross_entropy(logits[known], graph.label[known])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        accuracy = (logits.detach().argmax(dim=1) == graph.label)[~known].float().mean()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f} accuracy {accuracy.item():.3f}")
