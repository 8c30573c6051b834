"""Migrations, one file per version of the schema."""
