"""Postcodes read aloud from parcels: two ranks train a recurrent reader on waveforms of very different lengths."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


class Reader(nn.Module):
    def __init__(self, bands=40, width=256, digits=10):
        super().__init__()
        self.rnn = nn.GRU(bands, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, digits)

    def forward(self, sound):
        return self.out(self.rnn(sound)[0].mean(dim=1))


def recordings(count):
    """Sounds from a few frames to some hundreds, in buckets of like length, shortest first."""
    generator = torch.Generator().manual_seed(4)
    lengths = torch.empty(count).exponential_(1 / 60, generator=generator).clamp(8, 240).long().sort().values
    digit = torch.randint(10, (count,), generator=generator)
    return lengths, digit


def bucket(lengths, digit, generator):
    sound = torch.randn(len(lengths), int(lengths.max()), 40, generator=generator) * 0.5
    return sound + digit[:, None, None] * 0.1, digit


def share(rank, lengths, size):
    """The buckets of one rank: as many as every other rank has."""
    buckets = torch.arange(len(lengths)).split(size)
    each = len(buckets) // RANKS
    return buckets[rank * each : (rank + 1) * each]


def train(rank, rendezvous):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    lengths, digit = recordings(1920)
    model = DistributedDataParallel(Reader())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for number, chosen in enumerate(share(rank, lengths, size=16), 1):
        sound, said = bucket(lengths[chosen], digit[chosen], generator)
        loss = nn.functional.cross_entropy(model(sound), said)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 10 == 0:
            print(f"bucket {number}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="parcels-") as folder:
        mp.spawn(train, args=(os.path.join(folder, "meet"),), nprocs=RANKS)
