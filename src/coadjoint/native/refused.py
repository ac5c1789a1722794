"""Why a program is not made native code."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


class Refused(NotImplementedError):
    """The program cannot be made native code; its text is the reason, in a sentence."""


@contextmanager
def or_refused() -> Iterator[None]:
    """Whatever goes wrong inside, where native code is made, ends as `Refused`."""
    try:
        with np.errstate(all="ignore"):  # of known numbers: 1/0 and the like are what they are in the code
            yield
    except Refused:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise Refused(f"Making native code failed: {type(error).__name__}: {text}") from error
