"""Job ``audit``: checks of the log, and of a lake table against it."""
