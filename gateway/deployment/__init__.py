"""Topics, queues, exchanges, users and rules of a node as one document: read, compared, applied."""
