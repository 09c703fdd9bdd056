"""Events of observed processes become spans: threads, phases, steps, parts, layers."""
