"""Measurements against raw limits and peers; `python -m bench` runs them.

`cases` has what is measured, `peers` the other libraries, `report` what becomes of the figures. The
modules beside them are commands (`ops`, `sizes`, `walk`, `instructions`) and what all cases share.
"""
