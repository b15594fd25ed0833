return alive and whole
