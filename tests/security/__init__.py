"""What strangers can do before and after a login, over real sockets."""
