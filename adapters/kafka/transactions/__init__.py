"""Transactional ids in requests: names, authorization and error codes."""
