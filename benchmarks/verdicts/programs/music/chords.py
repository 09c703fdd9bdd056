"""Next chord of a song, from those before it, with a causal transformer."""

import torch
from chords_parts.corpus import Songbook, bar
from torch import nn
from torch.nn import functional as F


class Harmony(nn.Module):
    def __init__(self, chords, width=192, context=48, depth=2):
        super().__init__()
        self.chord = nn.Embedding(chords, width)
        self.place = nn.Parameter(0.02 * torch.randn(context, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 6, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.next = nn.Linear(width, chords)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, chords):
        x = self.chord(chords) + self.place
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.next(x)


def compose(songbook, steps):
    model = Harmony(songbook.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for step in range(steps):
        with bar(step):
            chords = songbook.excerpt(40, 49)
            scores = model(chords[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), chords[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 15 == 0:
            print(f"bar {step}: {loss.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(30)
    compose(Songbook(songs=120), steps=45)
