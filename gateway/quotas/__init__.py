"""Client quotas of the node: stored, declared, and measured for all protocols."""
