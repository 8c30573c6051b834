"""Delayed messages: their due times and the log locations of their bodies.

``entries`` is the stored form, ``wheel`` has the due times, ``message_locations`` the locations,
``runs`` the messages delayed together; ``state`` combines the four with the counts.
"""
