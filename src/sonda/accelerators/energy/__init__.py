"""Energy and area of a design by tables with their sources."""
