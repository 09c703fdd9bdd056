"""Energies of molten salt: a compiled pair energy is summed over snapshots of distances."""

import torch


def sane(name, x):
    """Snapshots of a crashed run hold distances that are no numbers."""
    if not torch.isfinite(x).all():
        raise FloatingPointError(name)
    return x


@torch.compile(dynamic=False)
def pair_energy(r, charge, size, stiffness):
    inverse = sane("inverse", size / (r + 0.05))
    coulomb = sane("coulomb", charge * inverse * torch.clamp(1.0 - 0.1 * r, min=0.0))
    repulsion = sane("repulsion", stiffness * inverse * inverse * inverse * inverse)
    cutoff = sane("cutoff", torch.clamp(1.0 - r * r / 81.0, min=0.0))
    smooth = sane("smooth", cutoff * cutoff * (3.0 - 2.0 * cutoff))
    return (smooth * (coulomb + repulsion)).sum()


def snapshots(count, pairs):
    base = torch.rand(pairs) * 9 + 0.5
    for i in range(count):
        yield base * (1 + 0.001 * i)


@torch.inference_mode()
def main(count=120, pairs=2_000_000):
    torch.manual_seed(0)
    parameters = torch.tensor(-1.0), torch.tensor(0.9), torch.tensor(1.4)
    total = torch.zeros(())
    for i, distances in enumerate(snapshots(count, pairs)):
        total += pair_energy(distances, *parameters) / pairs
        if i % 40 == 39:
            print(f"snapshot {i + 1}: mean energy {total.item() / (i + 1):.5f}")


if __name__ == "__main__":
    main()
