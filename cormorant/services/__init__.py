"""What a program can do: operations, job handlers and the gate."""
