"""Commands of ``headgate``: ``serve`` has its own parser; the others are typer's, in app.py."""
