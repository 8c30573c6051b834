"""Topics: what there is, how it is set, and under which names it is found."""
