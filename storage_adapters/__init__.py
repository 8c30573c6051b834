"""Where batches live: each adapter keeps the contract of ``gateway.storage``."""
