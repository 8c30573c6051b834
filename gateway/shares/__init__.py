"""Share groups (KIP-932): groups whose members compete for messages, on queues."""
