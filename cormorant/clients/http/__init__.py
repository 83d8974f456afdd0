"""Safe and bounded HTTP requests."""
