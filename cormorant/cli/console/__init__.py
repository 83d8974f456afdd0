"""What all commands share: options, output, signals and access to the database."""
