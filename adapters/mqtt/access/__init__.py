"""Who a client is, and what it may publish, subscribe to and still read."""
