"""Authentication and authorization of requests."""
