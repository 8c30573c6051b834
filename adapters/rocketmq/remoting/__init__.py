"""Frames, headers and bodies of the remoting protocol, its connections and its request codes."""
