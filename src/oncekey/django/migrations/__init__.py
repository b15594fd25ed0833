"""The migrations of the store's tables, which bring them up to date as the store itself does."""
