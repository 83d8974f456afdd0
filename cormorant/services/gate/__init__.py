"""The endpoint for apps."""
