"""Consumer groups: their members, and the positions that they have committed."""
