"""Mistakes that a cluster, or a profile of one, shows: each one sentence with what, where and the remedy."""


class ClusterError(Exception):
    """A place to run that refused the work: no executor, no slot, no permission.

    Root of every error of this package; the command line prints it without a traceback.
    """

    @property
    def first_line(self) -> str:
        """The message as far as it has room in a sentence."""
        return (str(self).splitlines() or ["no reason given"])[0]
