"""To which family an organism belongs, from the spectrum of short words in its genome."""

import random

import torch
from phylo_parts.spectrum import Spectrum
from torch import nn


def genomes(count, length, families, seed=1):
    """Genomes as text; each family prefers some bases."""
    chance = random.Random(seed)
    for _ in range(count):
        family = chance.randrange(families)
        weights = [1 + 0.3 * ((family >> bit) & 1) for bit in range(4)]
        yield "".join(chance.choices("ACGT", weights, k=length)), family


class Classifier(nn.Sequential):
    def __init__(self, families, word=5, width=1024):
        super().__init__(
            Spectrum(word),
            nn.Linear(4**word, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, families),
        )


def main(steps=40, size=192):
    torch.manual_seed(3)
    texts, families = zip(*genomes(1200, 800, 16), strict=True)
    families = torch.tensor(families)
    model = Classifier(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(steps):
        rows = torch.randint(len(texts), (size,))
        scores = model([texts[row] for row in rows])
        loss = nn.functional.cross_entropy(scores, families[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
