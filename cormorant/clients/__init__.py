"""How to talk to one kind of outside system, one kind a file. No scheduling and no storage: a client is asked and answers."""
