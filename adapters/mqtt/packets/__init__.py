"""Bytes: what packets are made of, their framing, PUBLISH in runs and in forms."""
