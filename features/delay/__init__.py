"""Messages that wait for their time: which of them are due, and where their bodies lie.

``entries`` is how they are stored, ``wheel`` says when, ``places`` says where, ``state`` puts
the three together with the counts.
"""
