"""Classes that break a promise, each with what a check says of it."""

from __future__ import annotations


class Mutants(list):
    """Pairs of a class and the promise that it breaks."""

    def breaks(self, told):
        """Decorate a class that breaks a promise."""

        def added(mutant):
            self.append((mutant, told))
            return mutant

        return added

    def like(self, name, kind, told, **methods):
        """Add a class like another one, with other methods, which breaks a promise."""
        self.append((type(name, (kind,), methods), told))
