"""Transaction coordinator: transactional ids, their transactions, and how each one ends."""
