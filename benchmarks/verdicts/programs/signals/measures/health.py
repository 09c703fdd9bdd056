"""Signs of a representation that collapses."""

import torch


class Health:
    """How many directions the points use, how close neighbours lie, and how even the spread is."""

    def __init__(self, keep=20):
        self.keep = keep
        self.ranks, self.nearest = [], []

    @torch.no_grad()
    def observe(self, points):
        centred = points - points.mean(dim=0)
        share = torch.linalg.svdvals(centred)
        share = share / share.sum()
        self.ranks.append(torch.exp(-(share * (share + 1e-12).log()).sum()).item())
        apart = torch.cdist(points, points).fill_diagonal_(torch.inf)
        self.nearest.append(apart.amin(dim=1).median().item())

    def line(self):
        return f"rank {self.ranks[-1]:.1f}, nearest {self.nearest[-1]:.3f}"
