"""Messages of producers: their headers, their checks, and their way into the log."""
