"""Figures: each takes an answer and draws it; nothing is computed here."""
