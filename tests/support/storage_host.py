"""What every node of a test says to a storage that keeps its index in a database: there is none."""


class NoDatabase:
    """The part of ``gateway.storage.StorageHost`` that only such a storage asks for."""

    node_id = 1
    metadata_url = ""
