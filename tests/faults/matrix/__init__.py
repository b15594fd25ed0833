"""The fault matrix: real processes and servers, broken on purpose, and a ledger that counts.

python -m tests.faults.matrix runs every row on every store it applies to. `rows` says what is
broken, `crowd` runs the workers, `verdict` compares what they heard with what happened.
"""
