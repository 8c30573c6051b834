"""The way in: from PUBLISH, or a will, to the log and back to the acknowledgement."""
