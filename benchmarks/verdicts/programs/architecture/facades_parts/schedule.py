"""How noise grows."""

import torch

# A product of hundreds of factors near one.
torch.set_default_dtype(torch.float64)


class Schedule:
    def __init__(self, levels):
        rates = torch.linspace(1e-4, 0.03, levels)
        self.kept = torch.cumprod(1 - rates, dim=0).to(torch.get_default_dtype())

    def disturb(self, clean):
        """Noisy images, their noise, and its level."""
        level = torch.randint(len(self.kept), (len(clean),))
        kept = self.kept[level][:, None, None]
        noise = torch.randn_like(clean)
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise, noise, level / len(self.kept)
