"""Names and definitions that several parts of Sonda share: percentiles, Top-Down's categories, groups of ranks."""
