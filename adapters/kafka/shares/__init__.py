"""Fetches and acknowledgements of share groups (KIP-932)."""
