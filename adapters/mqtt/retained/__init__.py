"""Retained messages: kept, and sent to who subscribes."""
