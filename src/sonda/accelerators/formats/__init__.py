"""Other simulators: their files and their published formulas."""
