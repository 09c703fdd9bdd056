"""Programs side by side: how much they slow each other, and in which layers."""
