"""What all parts have in common that keep something in SQL."""
