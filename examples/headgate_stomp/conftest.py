"""Fixtures of Headgate for the tests of this package."""

pytest_plugins = ["gateway.testing.fixtures"]
