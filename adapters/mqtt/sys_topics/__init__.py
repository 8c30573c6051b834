"""What the endpoint counts: for ``/metrics``, and as ``$SYS``."""
