"""The tests, in the shape of the code they test, and the tools they share."""
