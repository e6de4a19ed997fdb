"""The parties of a selection in phases, and their messages."""
