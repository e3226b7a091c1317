"""Losses, optimizers, schedules, initialisers, loss scale: configuration and pure formulas."""
