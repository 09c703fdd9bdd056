"""Count photons over a stack of long exposures: every exposure is spread into a volume and summed up."""

import torch


class Volume:
    """Exposures, binned by arrival."""

    def __init__(self, bins, height, width):
        self.shape = (bins, height, width)

    def spread(self, arrival, counts):
        volume = torch.zeros(self.shape)
        volume.scatter_(0, arrival.unsqueeze(0), counts.unsqueeze(0))
        return volume


def exposures(count, bins, height, width):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        arrival = torch.randint(bins, (height, width), generator=generator)
        counts = torch.rand(height, width, generator=generator)
        yield arrival, counts


def main(count=130, bins=32, height=512, width=512):
    space = Volume(bins, height, width)
    profile = torch.zeros(bins)
    for number, (arrival, counts) in enumerate(exposures(count, bins, height, width)):
        volume = space.spread(arrival, counts)
        profile += volume[:, ::4, ::4].sum(dim=(1, 2))
        if number % 20 == 0:
            print(f"exposure {number}: peak {profile.max().item():.1f}")
    print(f"total {profile.sum().item():.1f}")


if __name__ == "__main__":
    main()
