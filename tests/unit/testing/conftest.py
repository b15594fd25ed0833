from oncekey.testing import once_chaos

__all__ = ["once_chaos"]
