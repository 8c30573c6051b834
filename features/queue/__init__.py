"""Competing consumers: who has which message of a partition, for how long, the how-manieth time.

``model`` has the words and ``lane`` the state of one partition and group: others call nothing
else. Behind it, in reading order: ``states`` (what is known of a message), ``ahead`` (what was
never handed out), ``open_messages`` (what was, and is not done), ``lines`` (who goes next),
``taking``, ``acking``, ``returning`` and ``giving_up`` (a call each), ``browsing`` and
``timers``; ``journal`` has the entries that rebuild it all, and ``replay`` does it.
"""
