"""Settings shared by the experiments of the group."""

import random

import numpy as np
import torch


def prepare(seed):
    """The same numbers in every run."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
