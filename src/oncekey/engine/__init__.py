"""Everything around the rules of `core` that does I/O: asking stores, waiting and recovering."""
