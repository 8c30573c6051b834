"""Consumer groups whose coordinator assigns the partitions (KIP-848)."""
