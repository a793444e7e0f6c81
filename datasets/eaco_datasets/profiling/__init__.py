"""Measures training jobs alone and together on the machine it runs on, and writes the profile table."""
