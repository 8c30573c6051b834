"""A plug-in for Headgate: the protocol ``lines`` and the storage ``drawer``."""
