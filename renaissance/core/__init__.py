"""Vocabulary shared by every room: types, errors, settings, random numbers."""
