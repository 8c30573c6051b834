"""Shared feature blocks: pure, bounded, time handed in. Blocks never import each other."""
