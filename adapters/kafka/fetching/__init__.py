"""A fetch under way: its partitions, its limits and its answer."""
