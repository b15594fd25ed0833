"""A shop whose orders are worked on by Celery and watched on a page of React."""
