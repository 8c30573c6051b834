"""One client's connection: bytes in and out, deadlines, CONNACK, WebSocket."""
