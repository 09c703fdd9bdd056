"""Income from census records: all columns as one table, minibatches drawn at random."""

import torch
from torch import nn

COLUMNS = 320
PEOPLE = 40_000


def load_columns(generator):
    """Columns by name, standardised, as the census office delivers them."""
    return {f"c{i}": torch.randn(PEOPLE, generator=generator) for i in range(COLUMNS)}


class Table:
    def __init__(self, columns):
        self.values = torch.stack(list(columns.values()))
        income = self.values[:12].sum(0) + self.values[20] * self.values[21]
        self.income = income / income.std()

    def __len__(self):
        return self.values.shape[1]

    def rows(self, chosen):
        return self.values[:, chosen].T, self.income[chosen]


def main():
    torch.manual_seed(42)
    table = Table(load_columns(torch.Generator().manual_seed(42)))
    model = nn.Sequential(nn.Linear(COLUMNS, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(12):
        total = 0.0
        for chosen in torch.randperm(len(table)).split(4000):
            x, income = table.rows(chosen)
            loss = nn.functional.mse_loss(model(x).squeeze(1), income)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / 10:.4f}")


if __name__ == "__main__":
    main()
