"""Transcribe digits from spectra with CTC, masking parts of the spectra while training."""

import torch
from torch import nn

DIGITS = 11
FRAMES = 120
BANDS = 40


class Masking:
    """Random spans in time and frequency are set to zero."""

    def __init__(self, generator, spans=12, longest=10):
        self.generator = generator
        self.spans = spans
        self.longest = longest

    def span(self, size):
        length = int(torch.randint(1, self.longest + 1, (), generator=self.generator))
        start = int(torch.randint(0, size - length + 1, (), generator=self.generator))
        return start, start + length

    def __call__(self, spectra):
        masked = spectra.clone()
        for sample in masked:
            for _ in range(self.spans):
                begin, end = self.span(BANDS)
                sample[:, begin:end] = 0
                begin, end = self.span(FRAMES)
                sample[begin:end] = 0
        return masked


class Transcriber(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, stride=2, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU()
        )
        self.symbols = nn.Linear(width, DIGITS)

    def forward(self, spectra):
        hidden = self.convolve(spectra.transpose(1, 2)).permute(2, 0, 1)
        return self.symbols(hidden).log_softmax(-1)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(12)
    masking = Masking(generator)
    model = Transcriber()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = 32
    inputs = torch.full((batch,), FRAMES // 2)
    lengths = torch.full((batch,), 8)
    spectra = torch.randn(256, FRAMES, BANDS, generator=generator)
    digits = torch.randint(1, DIGITS, (256, 8), generator=generator)
    for step in range(150):
        chosen = torch.randint(256, (batch,), generator=generator)
        logits = model(masking(spectra[chosen]))
        loss = nn.functional.ctc_loss(logits, digits[chosen], inputs, lengths)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
