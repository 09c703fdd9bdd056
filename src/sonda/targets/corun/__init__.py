"""Programs side by side on one machine."""
