"""What the drivers of all frameworks share: settings, announced steps and epochs, counted steps, checkpoints."""
