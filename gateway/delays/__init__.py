"""Messages that wait for their time: kept in ``__delays``, moved when they are due."""
