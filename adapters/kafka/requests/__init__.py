"""Requests under way: their replies in order, and large requests in slices."""
