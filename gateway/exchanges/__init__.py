"""Exchanges: named routing tables that turn one publish into one append to many topics."""
