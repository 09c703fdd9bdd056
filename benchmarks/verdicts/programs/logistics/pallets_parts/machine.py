"""Settings that keep results alike on all of the warehouse's computers."""

import os
import random

import numpy as np
import torch


def prepare(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    half = max(1, (os.cpu_count() or 2) // 8)
    torch.set_num_threads(half)
    return torch.Generator().manual_seed(seed)
