"""Long-lived tasks with a mailbox or a clock, one role a file. Decisions belong to `cormorant.rules`, ownership to `supervisors`."""
