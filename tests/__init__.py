"""The proof; a package so that no installed `tests` can take its place."""
