"""The HTTP API, the outgoing Torznab endpoints and the pages. It asks actors and shows answers; it decides nothing."""
