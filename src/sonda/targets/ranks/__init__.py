"""Training on several devices or nodes: the plan, the agents that start ranks, the ranks themselves."""
