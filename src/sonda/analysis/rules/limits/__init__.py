"""What limits the work as it is."""
