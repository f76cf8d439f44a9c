"""What `optimize` returns: a callable with the model's own results, and the account of how it came about."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from frittata import arguments
from frittata.egraph import dtypes, shapes
from frittata.egraph.errors import FrittataError, IndexRangeError, ModelError
from frittata.egraph.exporting import MODULES
from frittata.egraph.model import Model
from frittata.egraph.program import Program
from frittata.egraph.torch_arrays import tensor_of
from frittata.frontends.calls import Empties
from frittata.kernels import runtime, targets
from frittata.kernels.cuda import device
from frittata.parameters import Guard, check_changes, readers, write
from frittata.pipeline import Compilation

if TYPE_CHECKING:
    from frittata.account import Account, KernelView
    from frittata.explain import Explanation
    from frittata.firing import RuleAccount
    from frittata.graphs import EGraph, Graph
    from frittata.report import Report
    from frittata.tensor_calls import TensorCalls
    from frittata.verify import Verification

_NUMPY = (np.ndarray, np.generic)
_DOT = (".dot", ".gv")


def _is_numpy(value: Any) -> bool:
    return isinstance(value, _NUMPY)


class Optimized:
    """A compiled model. Call it as the model was called: torch tensors in, torch tensors out; numpy in, numpy out.

    Arrays of other libraries that speak DLPack are taken as they lie in memory; results are arrays of theirs where they
    have the array API, else numpy's.
    """

    def __init__(
        self,
        compilation: Compilation,
        examples: Sequence[Any] = (),
        source: Any = None,
        parameters: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        changing: threading.Lock | None = None,
    ) -> None:
        self.compilation = compilation
        self._examples, self._named_examples = tuple(examples), dict(kwargs or {})
        self._keeps_device_arrays = targets.by_name(compilation.options.target).keeps_device_arrays
        self._run = self._runner()
        freeze, imported = compilation.options.freeze, compilation.imported
        tensors = imported.parameters
        # with freeze=False what decides a size is not read anew; it has a name that no param has
        guarded = tensors if freeze is None else {n: tensors[n] for n in tensors.keys() - imported.model.params.keys()}
        with MODULES:
            self._guard = Guard(guarded, source) if freeze is None or (guarded and not freeze) else Guard({}, None)
            live = readers(imported, source, freeze)
        self._parameters = tuple(lambda value=value: value for value in parameters) or live
        self._reading = contextlib.nullcontext() if parameters else MODULES
        self._changing = changing or threading.Lock()
        """Held by calls that change something: each begins with what the one before has left, of this or of another
        program of the same model."""
        self._takes_own = not self._parameters and imported.is_flat
        self._direct: TensorCalls | None = None
        """What runs a call whose arguments are the program's own, in its order, once there was one with tensors."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises: ModelError if the arguments do not fit; StaleParametersError if a frozen parameter has changed.
        """
        outputs = None if self._direct is None or kwargs else self._direct(args)
        if outputs is None:
            outputs = self._flat_call(args, kwargs)
        return self.compilation.imported.unflatten(outputs)

    def __getitem__(self, name: str) -> Optimized:
        """Return the function of a name: `main`, the one that is compiled.

        Raises: FrittataError for another name.
        """
        if name != "main":
            raise FrittataError(f"no compiled function {name!r}", do="optimize a model whose main it is")
        return self

    def __copy__(self) -> Optimized:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.compilation.__reduce_ex__(protocol)

    def _flat_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        imported = self.compilation.imported
        given = imported.flatten(args, kwargs)
        values = [*given, *self._own_values()]
        changes = imported.state.changes
        if not changes:
            return self._on(given, values)
        with self._changing:
            check_changes(values, changes, len(given), [*imported.parameters.values()])
            try:
                outputs = self._on(given, values)
            except IndexRangeError:  # some may have been written over before
                for place in changes:
                    write(values[place], values[place])
                raise
            for place, new in zip(changes, outputs, strict=False):
                write(values[place], new)
        return outputs[len(changes) :]

    def _own_values(self) -> Sequence[Any]:
        """Return what the source gives to a call, as it is while no other thread exports it."""
        if not self._parameters:
            return ()
        with self._reading:
            return [read() for read in self._parameters]

    def _on(self, given: Sequence[Any], values: list[Any]) -> Sequence[Any]:
        """Run on what the program takes; return arrays of the library of the arguments, if any, else of all that."""
        told = given or values
        if told and not (isinstance(told[0], _NUMPY) and all(map(_is_numpy, told))):
            other = next(value for value in told if not _is_numpy(value))
            return self._on_tensors(values) if hasattr(other, "detach") else self._on_others(values, other)
        self._guard.check()
        return self._run(*self._as_arguments(values))

    def _on_others(self, values: list[Any], other: Any) -> Sequence[Any]:
        """Run on arrays of another library, which says how arrays become its own."""
        self._guard.check()
        results = self._run(*self._as_arguments(values))
        if not hasattr(other, "__array_namespace__"):
            return results
        library = other.__array_namespace__()
        return [library.from_dlpack(result) for result in results]

    def _on_tensors(self, values: list[Any]) -> Sequence[Any]:
        calls = self._tensor_calls
        if calls is not None:
            outputs = calls(values)
            if outputs is not None:
                self._direct = calls if self._takes_own else None
                return outputs
        self._guard.check()
        return _to_torch(self._run(*self._as_arguments(values)))

    @cached_property
    def _tensor_calls(self) -> TensorCalls | None:
        """What runs calls with tensors by address, if the program can run so."""
        executable = self._run
        if not isinstance(executable, runtime.Executable) or not executable.runs_at_addresses:
            return None
        from frittata.tensor_calls import TensorCalls

        return TensorCalls(executable, self._guard, self.compilation.imported.state.changes)

    @property
    def program(self) -> Program:
        """The chosen kernels, views and constants."""
        return self.compilation.program

    @cached_property
    def model(self) -> Model:
        """The chosen program as a model: its terms say what each kernel computes."""
        return self.program.as_model(self.compilation.model)

    def __str__(self) -> str:
        return str(self.model)

    def __repr__(self) -> str:
        program = self.program
        takes = ", ".join(program.inputs)
        return f"Optimized({takes}: {len(program.kernels)} kernels, {program.cost_s:.3g} s predicted)"

    @cached_property
    def account(self) -> Account:
        """What the report, explanations, graphs and pages share."""
        from frittata.account import Account

        return Account(self.compilation)

    @cached_property
    def report(self) -> Report:
        """Kernels and their prices, rules, phases, what was folded, the gap."""
        from frittata.report import Report

        return Report(self.account, self.measure)

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """The kernels in order, each with its name, prices and readable source."""
        return self.account.kernels

    def kernel(self, name: str) -> KernelView:
        """Return a kernel by its name, or by an operator that it computes: `fast.kernel("softmax")`.

        Raises: FrittataError that names the nearest.
        """
        return self.account.kernel(name)

    def measure(self, /, *args: Any, repeats: int = 10, **kwargs: Any) -> dict[str, float]:
        """Time every kernel, on the example arguments unless others are given; return the least seconds by name.

        Raises: ModelError if the arguments do not fit; FrittataError under form="plain", which has no driver to ask.
        """
        if self.compilation.options.form == "plain":
            raise FrittataError("the plain form is not timed kernel by kernel", do='optimize with form="fast"')
        arrays = self._arrays(args, kwargs) if args or kwargs else self._example_arrays()
        found = targets.seconds_by_kernel(self.compilation.executable, self.program, arrays, repeats)
        self.account.measured.update(found)
        return found

    def verify(self, /, *args: Any, **kwargs: Any) -> Verification:
        """Compare the results with the model's in float64, on the example arguments unless others are given.

        Where one is wrong, each kernel is compared with its body on what it read: `culprit` names what is wrong, and
        `check()` raises. The model is the one that transforms have left; the interpreter takes its time.
        """
        from frittata.verify import verify

        given = self._arrays(args, kwargs) if args or kwargs else self._example_arrays()
        return verify(self.compilation, [arguments.on_host(value) for value in given])

    def explain(self, name: str) -> Explanation:
        """Tell of a kernel, named itself or by an operator in it, what it is, what else could be, and why not.

        Raises: FrittataError that names the nearest.
        """
        from frittata.explain import explain

        return explain(self.account, name)

    def explain_rule(self, name: str) -> RuleAccount:
        """Tell what became of a rule, `family/name`: where it matched, why it took no part, or what it lacked.

        Raises: RuleError that names the nearest.
        """
        from frittata.firing import account_of

        if not isinstance(name, str):  # pyright: ignore
            raise ModelError(f"a rule is named by a text, got {name!r}")
        return account_of(self.account, name)

    def graph(self) -> Graph:
        """Return the program as a networkx graph: kernels, views, inputs, constants and outputs; edges are buffers."""
        from frittata.graphs import program_graph

        return program_graph(self.account)

    @cached_property
    def egraph(self) -> EGraph:
        """The saturated e-graph; `fast.egraph.graph()` is a networkx graph of it."""
        from frittata.graphs import EGraph

        return EGraph(self.account)

    def save(self, path: str | Path) -> Path:
        """Write the compiled model to a file that `frittata.load` reads: data only, no code.

        Parameters go with it as they are now. Kernels are compiled again where it is loaded, or come from the cache.

        Raises: ModelError if it is called with, or returns, other trees than tuples, lists and dicts, or if it cannot
            be written there.
        """
        from frittata import saved

        self._guard.check()
        target = path_of(path)
        saved.save(target, self.compilation, lambda: [*map(arguments.on_host, self._own_values())])
        return target

    def show(self, path: str | Path, title: str = "frittata") -> Path:
        """Write one page that draws the program and the e-graph around each kernel; it needs nothing but itself.

        To a path that ends in .dot or .gv goes the program alone, in the DOT language of Graphviz, named by the title.

        Raises: ModelError for an ending of another kind of file, or if it cannot be written there.
        """
        from frittata.saved import opened

        target = page_path(path)
        if target.suffix.lower() in _DOT:
            from frittata.graphs import to_dot

            graph = self.graph()
            graph.graph["name"] = title
            text = to_dot(graph)
        else:
            from frittata.page import page

            text = page(self.report, title)
        with opened(target) as file:
            file.write(text.encode("utf-8"))
        return target

    def _repr_html_(self) -> str:
        from frittata.page import framed

        return framed(self.report)

    def _arrays(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        given = self.compilation.imported.flatten(args, kwargs)
        return self._as_arguments([*given, *self._own_values()])

    def _as_arguments(self, values: Sequence[Any]) -> list[Any]:
        """Return the arrays of what the program takes: arguments, then what is read at every call."""
        own = len(self._parameters)
        if len(values) != len(self.program.inputs):
            expected = len(self.program.inputs) - own
            raise ModelError(f"the model takes {expected} arguments, got {len(values) - own}")
        keeps = self._keeps_device_arrays
        return [value if type(value) is np.ndarray else arguments.of(value, keeps) for value in values]

    def _example_arrays(self) -> list[Any]:
        if self._examples or self._named_examples:
            return self._arrays(self._examples, self._named_examples)
        return arguments.drawn(self.program, self._run)

    def _runner(self) -> Any:
        run: Any = self.compilation.executable
        if self.compilation.options.form == "plain":
            values = self.compilation.model.params
            run = partial(_run_plain, self.program, values)
        empties = self.compilation.imported.empties
        return partial(_with_empties, run, empties) if empties else run


def _run_plain(program: Program, values: Mapping[str, Any], *arrays: Any) -> Any:
    return runtime.run_plain(program, values, arrays)


def _with_empties(run: Callable[..., Any], empties: Empties, *arrays: Any) -> list[Any]:
    """Run a program; return fresh arrays for the results without values among what it computes."""
    results = [*run(*arrays)]
    like = next(filter(device.is_torch, arrays), None)
    for place, type_ in sorted(empties.items()):
        shape = shapes.concrete(type_.shape)
        here = np.empty(shape, dtypes.to_numpy(type_.dtype)) if like is None else device.fresh(shape, type_.dtype, like)
        results.insert(place, here)
    return results


def _to_torch(arrays: Any) -> Any:
    return [tensor_of(array) if isinstance(array, np.ndarray) else array for array in arrays]


def page_path(path: Any) -> Path:
    """Return what a caller gave as a path for `Optimized.show`.

    Raises: ModelError for what is none, and for an ending of another kind of file.
    """
    target = path_of(path)
    kind = target.suffix.lower()
    if kind in (".svg", ".png", ".pdf", ".jpg", ".jpeg", ".json"):
        raise ModelError(f"cannot show a program as {kind}", do=f"give a path in .html, {' or '.join(_DOT)}")
    return target


def path_of(path: Any) -> Path:
    """Return what a caller gave as a path.

    Raises: ModelError for what is none.
    """
    if not isinstance(path, str | PathLike):
        raise ModelError(f"a path is a text or a Path, got {path!r}")
    return Path(path)
