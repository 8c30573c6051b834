"""Properties of messages, carried from each protocol to each by stock clients."""
