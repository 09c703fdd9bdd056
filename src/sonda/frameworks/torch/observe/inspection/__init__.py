"""What else is looked at in a counted step: causes that its operations show."""
