"""Programs side by side on one machine, each also alone: how much they slow each other down."""
