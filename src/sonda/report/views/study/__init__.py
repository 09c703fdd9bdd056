"""Studies: plan, tables, figures and answer."""
