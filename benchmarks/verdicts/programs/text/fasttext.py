"""Language identification with hashed n-grams, after fastText."""

import torch
from torch import nn

BUCKETS = 200_000
WIDTH = 32
LANGUAGES = 40


class HashedNgrams(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(BUCKETS, WIDTH, mode="mean")
        self.out = nn.Linear(WIDTH, LANGUAGES)
        nn.init.uniform_(self.bag.weight, -0.05, 0.05)

    def forward(self, ngrams):
        return self.out(self.bag(ngrams))


def sample(batch, length=60):
    languages = torch.randint(LANGUAGES, (batch,))
    ngrams = (torch.randint(0, 9000, (batch, length)) * 37 + languages[:, None] * 3571) % BUCKETS
    return ngrams, languages


torch.manual_seed(5)
model = HashedNgrams()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_function = nn.CrossEntropyLoss()

running = 0.0
for step in range(1, 101):
    ngrams, languages = sample(64)
    loss = loss_function(model(ngrams), languages)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running += loss.item()
    if step % 25 == 0:
        print(f"{step:4d}  loss {running / 25:.3f}")
        running = 0.0
