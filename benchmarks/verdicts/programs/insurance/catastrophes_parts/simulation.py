"""Years of storms and what they destroy."""

import torch


class Simulation:
    def __init__(self, years, portfolios, regions=256):
        self.exposure = torch.rand(regions, portfolios) / regions
        self.years, self.regions = years, regions

    def storms(self):
        return torch.rand(self.years, self.regions).pow(4)

    def losses(self, retention):
        """Loss of each year, over all portfolios."""
        gross = torch.mm(self.storms(), self.exposure)
        net = torch.mul(gross, 1 - retention)
        capped = torch.clamp(net, max=0.2)
        return capped.sum(dim=1)
