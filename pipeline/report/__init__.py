"""Job ``report``: traffic, sizes and lateness, as an HTML page."""
