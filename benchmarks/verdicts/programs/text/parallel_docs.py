"""Document classifier trained by two processes that average their gradients (gloo)."""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

RANKS = 2
STEPS = 70
BATCH = 8


class DocumentModel(nn.Module):
    def __init__(self, words=1000, width=128):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, words):
        states, _ = self.rnn(self.embedding(words))
        return self.out(states.mean(1))


def documents():
    generator = torch.Generator().manual_seed(13)
    lengths = 8 + 220 * torch.rand(RANKS * STEPS * BATCH, generator=generator).pow(3).sort().values
    return [torch.randint(1, 1000, (int(n),), generator=generator) for n in lengths]


def share_of(rank, texts):
    each = len(texts) // RANKS
    return texts[rank * each : (rank + 1) * each]


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= RANKS
    for p, grad in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad.copy_(grad.view_as(p))


def work(rank, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = DocumentModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    mine = share_of(rank, documents())
    for at in range(0, len(mine), BATCH):
        words = nn.utils.rnn.pad_sequence(mine[at : at + BATCH], batch_first=True)
        labels = words[:, 0] % 10
        loss = nn.functional.cross_entropy(model(words), labels)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        average_gradients(model)
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, args=(f"{folder}/meeting",), nprocs=RANKS, start_method="fork")
