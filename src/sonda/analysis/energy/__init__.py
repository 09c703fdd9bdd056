"""Energy and power: of a run, of its regions and steps, of a training, and how much of it sensors covered."""
