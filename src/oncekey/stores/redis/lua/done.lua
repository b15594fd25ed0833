return DONE
