"""What a description file says: engines, their hardware, memories, settings."""
