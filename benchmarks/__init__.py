"""One script per published number, each against a real peer in the same run."""
