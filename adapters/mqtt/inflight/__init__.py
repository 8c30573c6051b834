"""Messages on their way to a client, by packet identifier."""
