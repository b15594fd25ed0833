"""Tools that move definitions between modules and prove that nothing else changed."""
