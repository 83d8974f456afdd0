"""Tables, the statements over them, migrations and the gateway. No decisions, no waiting, no outside systems but the database."""
