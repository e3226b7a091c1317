"""Custom calls: their names, their operands in banks, what they touch, and how they are made."""
