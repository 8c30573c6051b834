"""Messages that wait for their time: which of them are due, and where their bodies lie.

``entries`` is how they are stored, ``wheel`` says when, ``locations`` says where, ``runs`` which of
them wait as one, ``state`` puts the four together with the counts.
"""
