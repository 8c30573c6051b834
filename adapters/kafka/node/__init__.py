"""State that all connections of the adapter share."""
