"""Queue administration: names, URLs, attributes, tags, policies, move tasks."""
