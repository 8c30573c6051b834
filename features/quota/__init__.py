"""Client quotas: whose quota counts for a client, and how long a client above its own waits."""
