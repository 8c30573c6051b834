"""Settings from the config file, the environment and the command line."""
