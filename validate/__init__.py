"""Measurements on the device at hand; the only part that needs torch."""
