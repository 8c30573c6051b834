"""Console of a node: web pages at its admin address, over the REST interface below ``/v1/``."""
