"""SQL access shared by all parts that keep data in SQL."""
