"""A measured run: its parts and steps, their layers, what was counted in them, and what they cost."""
