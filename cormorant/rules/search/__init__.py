"""Decisions about searches and the limits of sources."""
