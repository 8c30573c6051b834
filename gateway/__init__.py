"""Kernel of Headgate: model, broker, managers and ports. No protocol, no storage."""
