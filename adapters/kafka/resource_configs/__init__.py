"""Configs of topics and brokers, as DescribeConfigs shows and AlterConfigs changes them."""
