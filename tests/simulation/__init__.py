"""The simulator: the real engines in a world whose time, network and misfortunes are drawn.

    python -m tests.simulation --seeds 10000

`docs/simulation.md` says what is simulated and what is checked.
"""
