"""Tests of one client's connection."""
