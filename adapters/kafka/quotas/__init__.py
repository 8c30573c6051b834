"""Client quotas: what a request is charged, and how its client is throttled (KIP-219)."""
