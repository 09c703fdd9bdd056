"""The figures that a study can ask of a run, by kind."""
