"""Codecs of the requests and responses: by hand for the frequent APIs, by schema for the rest."""
