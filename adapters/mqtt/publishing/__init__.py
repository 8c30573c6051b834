"""PUBLISH packets of clients: admitted, routed, appended, acknowledged; wills."""
