"""Messages to connected subscribers: matching, encoding once, packet identifiers."""
