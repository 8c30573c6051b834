"""A plug-in for Headgate: the protocol ``stomp``."""
