"""What is shown of each kind of run and of each command, on a screen, on a page and as JSON."""
