"""Migrations of the metadata store's schema (alembic); loaded only when there is one to do."""
