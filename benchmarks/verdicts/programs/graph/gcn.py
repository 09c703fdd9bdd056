"""Semi-supervised classification of nodes with a graph convolution on a sparse adjacency."""

import torch
import torch.nn.functional as F
from torch import nn


class GCN(nn.Module):
    def __init__(self, features, width, classes):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x, adjacency):
        h = F.relu(torch.sparse.mm(adjacency, self.first(x)))
        h = F.dropout(h, 0.3, self.training)
        h = F.relu(torch.sparse.mm(adjacency, self.second(h)))
        return self.head(h)


def make_graph(nodes, degree, features, classes):
    label = torch.randint(classes, (nodes,))
    order = label.argsort()
    source = torch.arange(nodes).repeat_interleave(degree)
    target = (source + torch.randint(-200, 200, source.shape)) % nodes
    edges = torch.stack([order[source], order[target]])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    weights = torch.full((edges.shape[1],), 0.5 / degree)
    adjacency = torch.sparse_coo_tensor(edges, weights, (nodes, nodes)).coalesce().to_sparse_csr()
    x = torch.randn(classes, features)[label] + 3 * torch.randn(nodes, features)
    return x, label, adjacency


def main():
    torch.manual_seed(0)
    x, label, adjacency = make_graph(nodes=6000, degree=10, features=256, classes=7)
    known = torch.randperm(len(x))[:1500]
    rest = torch.ones(len(x), dtype=torch.bool)
    rest[known] = False
    model = GCN(256, 128, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(50):
        model.train()
        loss = F.cross_entropy(model(x, adjacency)[known], label[known])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if epoch % 25 == 24:
            model.eval()
            with torch.no_grad():
                accuracy = (model(x, adjacency).argmax(dim=1) == label)[rest].float().mean()
            print(f"epoch {epoch + 1}: loss {loss.item():.3f} accuracy {accuracy.item():.3f}")


if __name__ == "__main__":
    main()
