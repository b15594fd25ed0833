"""A tour of Oncekey in the terminal: `python -m examples.tour`. It ends by itself.

Every step shows its code, runs that same code, and checks what it claims.
"""

FOLDER = "ONCEKEY_TOUR_FOLDER"
"""The variable that names the folder of this run, for every process that takes part in it."""
