"""What can go wrong through a user's input. Everything here is caught by the command line and shown as one sentence.

Each class is also the built-in exception that a caller would expect, so `except ValueError` works as well.
"""


class SensewiseError(Exception):
    """Base of every mistake that the user can mend: the message says what was wrong, what was expected, what to do."""


class BudgetError(SensewiseError, ValueError):
    """A budget, a number of steps or a mask that cannot be met."""


class DataError(SensewiseError, ValueError):
    """Images, labels or files that are not what they should be."""


class CheckpointError(SensewiseError, ValueError):
    """Weights or a config that are missing, damaged or belong to another model."""


class ConfigError(SensewiseError, ValueError):
    """A preset or an option with an unknown name, a wrong type or an impossible value."""


class SessionError(SensewiseError, RuntimeError):
    """`ask` and `tell` in the wrong order, or readings that do not fit the question."""


class OutputError(SensewiseError, OSError):
    """A folder or file that cannot be written."""


class ProcessError(SensewiseError, RuntimeError):
    """One of several processes that work together is gone."""
