"""Record batches: octets to records and back, checked, searched and compressed."""
