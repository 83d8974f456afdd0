"""Every setting: how it is described, read and checked."""
