"""Why a program is not made native code."""


class Refused(NotImplementedError):
    """The program cannot be made native code; its text is the reason, in a sentence."""
