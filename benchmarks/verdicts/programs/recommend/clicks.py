"""Click-through rate from raw logs with hashed categories (DataLoader with workers)."""

import torch
from clicks_parts.features import Hasher
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUCKETS = 20_000


class Log(Dataset):
    def __init__(self, lines, seed=0):
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randint(0, 500, (lines, 12), generator=generator).tolist()
        self.lines = ["\t".join(f"f{i}={v:x}" for i, v in enumerate(row)) for row in draws]
        self.clicked = [(row[0] + row[3]) % 2 for row in draws]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return self.lines[i], self.clicked[i]


class ClickModel(nn.Module):
    def __init__(self, slots, width=8):
        super().__init__()
        self.table = nn.Embedding(BUCKETS, width, sparse=True)
        self.layers = nn.Sequential(nn.Linear(slots * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, codes):
        return self.layers(self.table(codes).flatten(1)).squeeze(1)


def main():
    torch.manual_seed(18)
    hasher = Hasher(BUCKETS)
    loader = DataLoader(
        Log(40_960), batch_size=256, shuffle=True, num_workers=2, collate_fn=hasher, persistent_workers=True
    )
    model = ClickModel(hasher.slots(12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1):
        for step, (codes, clicked) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(codes), clicked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
