"""Sort the stems of a remix: what plays in each, how sure that is, and what is left for the producer to hear."""

import torch
from remix_parts.answer import Ear
from torch import nn

STEMS = ["voice", "drums", "bass", "keys", "strings", "brass", "noise", "silence"]


def network(bins=512, width=1536):
    return nn.Sequential(
        nn.Linear(bins, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, len(STEMS))
    ).eval()


def tape(batches, size=1024):
    """Spectra of stems as they come from the tape."""
    generator = torch.Generator().manual_seed(23)
    shapes = torch.rand(len(STEMS), 512, generator=generator)
    for _ in range(batches):
        kinds = torch.randint(len(STEMS), (size,), generator=generator)
        yield shapes[kinds] + 0.3 * torch.randn(size, 512, generator=generator)


@torch.inference_mode()
def sort(batches=40):
    torch.manual_seed(40)
    ear = Ear(network())
    found, doubtful = torch.zeros(len(STEMS), dtype=torch.long), 0
    for number, spectra in enumerate(tape(batches), 1):
        answer = ear.listen(spectra)
        found += answer.kinds.bincount(minlength=len(STEMS))
        doubtful += int((answer.sureness < 0.2).sum())
        if number % 10 == 0:
            print(f"batch {number}: {doubtful} to hear again")
    print(dict(zip(STEMS, found.tolist(), strict=True)))


if __name__ == "__main__":
    sort()
