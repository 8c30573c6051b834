"""Routes as clients read them, and the foreign brokers that register with this name server."""
