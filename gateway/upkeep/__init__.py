"""What goes, what stays and what is listed: retention, compaction, key indexes."""
