"""Every failure that a user can meet: what failed, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class FrittataError(Exception):
    """The root of all errors: `what` failed, `where`, and what to `do`."""

    what: str
    where: str = ""
    do: str = ""

    def __str__(self) -> str:
        parts = [self.what]
        if self.where:
            parts.append(f"  where: {self.where}")
        if self.do:
            parts.append(f"  to do: {self.do}")
        return "\n".join(parts)


class ModelError(FrittataError):
    """A model, its arguments or one of its terms is ill-formed."""


class NarrowError(ModelError):
    """An operator would compute in a dtype that values are only stored in."""


class EmptyError(ModelError):
    """A tensor that would have no values."""


class UnsupportedOpError(ModelError):
    """The model uses operators that have no definition here."""


class MissingAttributeError(ModelError, AttributeError):
    """A tensor that is traced, or `ops`, has no such attribute; to what asks whether it has one, an AttributeError."""


class IndexRangeError(FrittataError, IndexError):
    """A value that a tensor of indices holds lies outside of the axis that it points into."""


class RuleError(FrittataError):
    """A rule cannot be read, is unsound, or cannot be compiled."""


class SaturationError(FrittataError):
    """egglog failed or an unsound merge was detected while a phase was running."""


class ExtractionError(FrittataError):
    """No legal program can be chosen from the e-graph."""


class LoweringError(FrittataError):
    """A kernel's body cannot be turned into loops."""


class CompileError(FrittataError):
    """numba or LLVM refused a generated kernel."""


class SharedMemoryError(ModelError):
    """What a call changes shares memory with what else it reads."""


class StaleParametersError(FrittataError):
    """A frozen parameter was changed after `optimize`."""


class VerificationError(FrittataError):
    """A compiled model gives other results than the model does in float64."""
