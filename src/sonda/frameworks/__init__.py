"""How PyTorch is driven and observed: the collector, the operation counter, the assembly of spans."""
