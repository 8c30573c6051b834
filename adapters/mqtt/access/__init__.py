"""Identity of clients, and their rights to publish, subscribe and read."""
