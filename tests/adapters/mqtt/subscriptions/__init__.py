"""Tests of topic filters."""
