return alive and {1, now, packed, kept[2], kept[3], kept[4]}
