"""Single operations, and loads that stress one resource."""
