return alive and {1, now, whole}
