"""What is read meanwhile, and what the machine can do: processor, ceilings, environment."""
