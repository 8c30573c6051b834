"""The commands of ``headgate``. ``serve`` is by itself; the others are typer's, in app.py."""
