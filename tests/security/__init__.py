"""Attacks: what others wrote against what we print, write, remember and remove."""
