"""Topic filters and who subscribed to them: the trie, ended subscriptions."""
