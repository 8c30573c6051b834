"""HTTP bodies and answers of both wire protocols."""
