"""Training of the methods (torch); builds on ``engine`` and is not needed at run time."""
