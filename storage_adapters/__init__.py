"""Storage adapters: each implements the contract of ``gateway.storage``."""
