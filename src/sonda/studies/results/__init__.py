"""What came of a study: tables, notes, outliers, optimisations, recordings."""
