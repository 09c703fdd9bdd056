"""The same numbers in every run."""

import random

import numpy as np
import torch


def repeatable(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
