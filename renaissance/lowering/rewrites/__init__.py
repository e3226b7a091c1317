"""From calls to calls: the same results with fewer launches and fewer passes over memory."""
