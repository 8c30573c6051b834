"""Sessions: filters and positions, what is on its way, and all of it on disk."""
