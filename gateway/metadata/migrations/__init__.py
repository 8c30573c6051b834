"""Migrations of the metadata store's schema (alembic), loaded when one is needed."""
