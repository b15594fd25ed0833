"""A receiver of webhooks that a provider may deliver several times."""
