"""Record batches: bytes to records and back, checked, searched and compressed."""
