"""Protected functions and methods of every kind, in a module that other processes import too."""

from oncekey import Once

once = Once("memory://", observers=())


@once("charge:{order}")
def charge(order: int, *, note: str = "") -> str:
    """Charge the card."""
    return f"{order} is paid{note}"


@once("send:{order}")
async def send(order: int, *, note: str = "") -> str:
    """Send the parcel."""
    return f"{order} is sent{note}"


class Shop:
    """Each kind of method, with the decorator above and below."""

    name = "A"

    def __init__(self, name: str = "A") -> None:
        self.name = name

    @once("sell:{self.name}:{order}")
    def sell(self, order: int) -> str:
        """Sell it."""
        return f"{self.name} has sold {order}"

    @once("deliver:{self.name}:{order}")
    async def deliver(self, order: int) -> str:
        """Deliver it."""
        return f"{self.name} has delivered {order}"

    @classmethod
    @once("count:{cls.name}:{order}")
    def count(cls, order: int) -> str:
        """Count it."""
        return f"{cls.name} has counted {order}"

    @once("weigh:{cls.name}:{order}")
    @classmethod
    def weigh(cls, order: int) -> str:
        """Weigh it."""
        return f"{cls.name} has weighed {order}"

    @once("label:{cls.name}:{order}")
    @classmethod
    async def label(cls, order: int) -> str:
        """Label it."""
        return f"{cls.name} has labelled {order}"

    @staticmethod
    @once("wrap:{order}")
    def wrap(order: int) -> str:
        """Wrap it."""
        return f"{order} is wrapped"

    @once("tie:{order}")
    @staticmethod
    def tie(order: int) -> str:
        """Tie it."""
        return f"{order} is tied"

    @once("seal:{order}")
    @staticmethod
    async def seal(order: int) -> str:
        """Seal it."""
        return f"{order} is sealed"


class Branch(Shop):
    """A subclass, which has a name of its own."""

    name = "B"

    def sell_as_usual(self, order: int) -> str:
        """Sell it as every shop does."""
        return super().sell(order)


shop = Shop()
