"""Topics, partitions and brokers as requests name them and responses describe them."""
