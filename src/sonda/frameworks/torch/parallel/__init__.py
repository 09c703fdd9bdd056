"""Training on several unequal devices: ranks, shares of a batch, gradients and statistics that add up exactly."""
