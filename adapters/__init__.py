"""One folder per protocol. Adapters know their protocol and the kernel, never each other."""
