"""Private names of a base class, which classes that derive from it must not use."""


class ReservedNames:
    """Base of a class whose private names its own subclasses cannot replace.

    A subclass that does is refused when it is defined: it would replace a step of its base by
    accident, as an ``_end`` of a protocol would replace that of ``gateway.connection``.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Check the names of a class. Error: ``TypeError``."""
        super().__init_subclass__()
        for base in cls.__mro__[1:]:
            if ReservedNames in base.__bases__:
                taken = sorted(
                    name for name in vars(cls).keys() & vars(base) if _is_private(name)
                )
                if taken:
                    raise TypeError(f"{cls.__name__} has names of {base.__name__}: {taken}")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
