"""Job ``archive``: topics into lake tables."""
