"""Programs and folders that take what was chosen."""
