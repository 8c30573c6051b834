"""One file per version of the schema, from the first on."""
