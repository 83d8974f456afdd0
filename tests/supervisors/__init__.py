"""Tests of the supervisor kit and of the service built with it."""
