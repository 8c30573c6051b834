"""The way out: from the log, live or catching up, to who wants it."""
