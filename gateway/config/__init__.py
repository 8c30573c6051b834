"""Settings: of the config file, the environment and the command line."""
