"""Optimizer: parameter groups, state, and how a step is taken in place or as a pure function.

Hyperparameters and step counts are 0-d tensors, so a jitted training step reads them anew at each call. All arithmetic
on them is in float64, as PyTorch's is on Python floats; the result is rounded once to the parameters' dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, GradientError, ShapeError
from ..graph.handle import Handle
from ..graph.node import Node
from ..graph.state import state
from ..graph.tracking import no_grad
from ..ops import elementwise as ops
from ..ops import leaf
from ..runtime.evaluate import evaluate
from ..tensor import Tensor
from ..transforms import guards, pytree

State = dict[str, Tensor]


class _outside_trace:
    """Tensors made inside outlive the trace that is being recorded, if one is."""

    def __enter__(self) -> None:
        self._trace = state.trace
        state.trace = None

    def __exit__(self, *exc: object) -> None:
        state.trace = self._trace


def _number(value: Any) -> Tensor:
    return Tensor(leaf.data(np.array(value, np.float64), False))


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros of the shape and dtype of ``tensor``, as a value that outlives a trace."""
    with _outside_trace():
        node = tensor._node
        return Tensor(leaf.data(np.zeros(node.shape, node.dtype.numpy), False))


def _is_rebound(tensor: Tensor) -> bool:
    """Whether the running trace, if any, has given ``tensor`` another value than it has outside."""
    entry = None if state.trace is None else state.trace.entries.get(id(tensor))
    return entry is not None and entry.is_rebound


def _read_layout(optimizer: Any, name: str) -> Any:
    """How many parameters there are, and which of them share a step count."""
    return len(optimizer._params), *[(counter, *sorted(counter.members)) for counter in optimizer._counters]


def _read_choice(group: Any, name: str) -> Any:
    return group.choices[name]


class ParamGroup(MutableMapping[str, Any]):
    """Parameters that share hyperparameters; a mapping of their names to values.

    ``group["lr"]`` is a 0-d float64 tensor; ``group["lr"] = 0.1`` gives it a new value. Flags are plain bools.
    ``group["params"]`` is the list of parameters.
    """

    def __init__(self, params: list[Tensor], options: Mapping[str, Any], check: Callable[[str, Any], None]) -> None:
        self.params = params
        self._check = check
        self.numbers: dict[str, Tensor] = {}
        # What decides the form of a step: the flags, and which numbers are 0.
        self.choices: dict[str, bool] = {}
        for name, value in options.items():
            self._add(name, value)

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self.choices[name] = value
        elif isinstance(value, tuple):
            for position, element in enumerate(value):
                self._add(f"{name}.{position}", element)
        else:
            self.numbers[name] = _number(0.0)
            self.choices[name] = False
            self._set_number(name, value)

    def _set_number(self, name: str, value: Any) -> None:
        is_number = isinstance(value, int | float | np.number)
        if is_number:
            self._check(name, float(value))
            value = float(value)
        elif not isinstance(value, Tensor):
            raise DTypeError(f"{name}: a number or a 0-d tensor expected, got {value!r}")
        self.numbers[name].assign(value)
        is_zero = is_number and value == 0.0
        if self.choices[name] is not is_zero:
            self.choices[name] = is_zero
            guards.touch()

    def __getitem__(self, name: str) -> Any:
        if name == "params":
            return self.params
        if name in self.numbers:
            return self.numbers[name]
        if f"{name}.0" in self.numbers:
            return tuple([self.numbers[key] for key in self.numbers if key.startswith(f"{name}.")])
        return self.choices[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.numbers:
            self._set_number(name, value)
        elif f"{name}.0" in self.numbers:
            for position, element in enumerate(value):
                self._set_number(f"{name}.{position}", element)
        elif name in self.choices:
            self.choices[name] = bool(value)
            guards.touch()
        else:
            raise KeyError(f"{name!r} is no hyperparameter of this optimizer; there are {', '.join(self)}")

    def __delitem__(self, name: str) -> None:
        raise KeyError(f"{name!r}: hyperparameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        names = ["params", *[name.split(".")[0] for name in self.numbers], *self.choices]
        return iter(dict.fromkeys([name.split(".")[0] for name in names]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        options = {name: self[name] for name in self if name != "params"}
        return f"ParamGroup({len(self.params)} tensors, {options})"

    def chosen(self, name: str) -> bool:
        """A flag; or, for a number, whether it is not 0. A trace that asks depends on the answer."""
        value = self.choices[name]
        if state.trace is not None:
            guards.note(state.trace, self, name, _read_choice, value)
        return value if name not in self.numbers else not value

    __hash__ = object.__hash__


class Hyper:
    """The hyperparameters of one group as a step uses them."""

    def __init__(self, group: ParamGroup) -> None:
        self._group = group
        self._cast: dict[tuple[str, Any], Tensor] = {}

    def has(self, name: str) -> bool:
        """A flag, or whether a number is not 0."""
        return self._group.chosen(name)

    def __getitem__(self, name: str) -> Tensor:
        """A number, in float64."""
        return self._group.numbers[name]

    def rounded(self, name: str, dtype: Any, compute: Callable[[], Tensor] | None = None) -> Tensor:
        """A number, or what ``compute`` makes of numbers, rounded to ``dtype``; computed once a step."""
        found = self._cast.get((name, dtype))
        if found is None:
            value = self._group.numbers[name] if compute is None else compute()
            found = self._cast[name, dtype] = Tensor(ops.cast(value.node, dtype))
        return found


class _Counter:
    """The number of steps taken, shared by the parameters (positions) that have always been stepped together."""

    def __init__(self, value: Tensor, members: set[int]) -> None:
        self.value = value
        self.members = members


class Optimizer:
    """Base of the optimizers.

    params: tensors that require a gradient, or dicts ``{"params": [...], "lr": ...}`` that override hyperparameters.
    A subclass gives the defaults, the state of one parameter (``_new_state``) and the update of one (``_update``).
    """

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        self.defaults = dict(defaults)
        self.param_groups: list[ParamGroup] = []
        if isinstance(params, guards.Guarded):
            raise GradientError(f"{type(self).__name__}: got a {type(params).__name__}; give its .parameters()")
        given = [params] if isinstance(params, Tensor) else list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__}: no parameters given")
        groups: list[Any] = given if isinstance(given[0], Mapping) else [{"params": given}]
        self._params: list[Tensor] = []
        self._group_of: list[int] = []
        self._states: list[State | None] = []
        self._counters: list[_Counter] = []
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add ``{"params": [...], ...}``; hyperparameters that it leaves out take the defaults."""
        name = type(self).__name__
        options = {**self.defaults, **{option: value for option, value in group.items() if option != "params"}}
        unknown = [option for option in options if option not in self.defaults]
        if unknown:
            raise ArgumentError(f"{name}: unknown option {unknown[0]!r}; there are {', '.join(self.defaults)}")
        if "params" not in group:
            raise ArgumentError(f"{name}: a group is {{'params': [...], ...}}, got one of {', '.join(group)} only")
        params = group["params"]
        members = [params] if isinstance(params, Tensor) else list(params)
        for position, tensor in enumerate(members):
            if not isinstance(tensor, Tensor):
                raise GradientError(
                    f"{type(self).__name__}: parameter {position} is a {type(tensor).__name__}, not a tensor"
                )
            if tensor._requires_grad is False:
                raise GradientError(
                    f"{type(self).__name__}: parameter {position} (shape {tensor.shape}) does not require a gradient; "
                    "call "
                    "requires_grad_() on it"
                )
            if any(tensor is known for known in self._params):
                raise ArgumentError(f"{name}: parameter {position} (shape {tensor.shape}) is given twice")
            self._params.append(tensor)
            self._group_of.append(len(self.param_groups))
            self._states.append(None)
        self.param_groups.append(ParamGroup(members, options, self._check))
        guards.touch()

    # -- what subclasses say -------------------------------------------------------------------------------------------

    def _check(self, name: str, value: float) -> None:
        """Raise ArgumentError for a hyperparameter out of its range."""
        if not value >= 0.0:
            raise ArgumentError(f"{type(self).__name__}: {name} must not be negative, got {value}")

    def _new_state(self, param: Tensor, hyper: Hyper) -> State:
        raise TypeError(f"{type(self).__name__} does not say what its state is")

    def _update(self, param: Tensor, grad: Tensor, state: State, count: Tensor, hyper: Hyper) -> tuple[Tensor, State]:
        raise TypeError(f"{type(self).__name__} does not say what its step is")

    # -- in place ------------------------------------------------------------------------------------------------------

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group; assigning sets it in all groups, also for jitted steps."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: Any) -> None:
        for group in self.param_groups:
            group["lr"] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set every ``.grad`` to None, or fill it with 0."""
        for param in self._params:
            grad = None if set_to_none else param.grad
            param.grad = grad if grad is None else Tensor(leaf.zeros_like(grad.node))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a ``.grad``: one graph over all of them, evaluated at once outside ``jit``.

        closure: computes the loss and its gradients first; its result is returned.
        """
        loss = None if closure is None else closure()
        trace = state.trace
        if trace is not None:
            for param in self._params:
                trace.pin(param)
        changed: list[Tensor] = []
        before: list[tuple[Tensor, Node]] = []  # to go back to if a value cannot be computed

        def rebind(tensor: Tensor, node: Node) -> None:
            before.append((tensor, tensor._node))
            tensor.rebind(node)
            changed.append(tensor)

        with no_grad():
            grads = {i: grad for i, param in enumerate(self._params) if (grad := param.grad) is not None}
            counts = self._count(set(grads), rebind)
            if trace is not None:
                guards.note(trace, self, "", _read_layout, _read_layout(self, ""))
            hypers = [Hyper(group) for group in self.param_groups]
            for i, grad in grads.items():
                param, hyper = self._params[i], hypers[self._group_of[i]]
                if grad.shape != param.shape:
                    raise ShapeError(
                        f"{type(self).__name__}: a gradient of shape {grad.shape} "
                        f"for a parameter of shape {param.shape}"
                    )
                own = self._state_of(i, hyper)
                new_param, new_state = self._update(param, grad, own, counts[i], hyper)
                node = new_param.node
                rebind(param, node if node.dtype is param.dtype else ops.cast(node, param.dtype))
                for name, value in new_state.items():
                    rebind(own[name], value.node)
        if trace is None:
            try:
                evaluate([tensor.node for tensor in changed])
            except BaseException:
                for tensor, node in reversed(before):
                    Handle.rebind(tensor, node)
                raise
        return loss

    def _state_of(self, position: int, hyper: Hyper) -> State:
        found = self._states[position]
        needed = self._new_state(self._params[position], hyper) if found is None or self._lacks(found, hyper) else {}
        if found is None:
            found = self._states[position] = {}
        for name, value in needed.items():
            found.setdefault(name, value)
        return found

    def _lacks(self, found: State, hyper: Hyper) -> bool:
        """Whether a change of hyperparameters calls for state that was not needed so far."""
        return False

    def _count(self, stepped: set[int], rebind: Callable[[Tensor, Node], None]) -> dict[int, Tensor]:
        """Advance the step counts of the parameters at ``stepped``; their new values."""
        known = set().union(*[counter.members for counter in self._counters])
        counts = {}
        new = stepped - known
        if new:
            self._add_counter(0, new)
        for counter in list(self._counters):
            members = counter.members & stepped
            if not members:
                continue
            if members != counter.members:
                counter.members -= members
                before, counter = counter, self._add_counter(counter.value._node, members)
                if _is_rebound(before.value):
                    counter.value.rebind(before.value.node)
            value = counter.value
            rebind(value, ops.add(value.node, 1))
            counts.update(dict.fromkeys(members, value))
        return counts

    def _add_counter(self, value: Any, members: set[int]) -> _Counter:
        with _outside_trace():
            node = leaf.data(np.array(value, np.int64), False) if isinstance(value, int) else value
            counter = _Counter(Tensor(node), set(members))
        self._counters.append(counter)
        guards.touch()
        return counter

    # -- as a pure function --------------------------------------------------------------------------------------------

    def init(self, params: Any) -> dict[str, Any]:
        """The state at the start for ``params``, a pytree of tensors; for :meth:`apply`."""
        hyper = Hyper(self.param_groups[0])
        leaves = [self._tensor(leaf_, "init") for leaf_ in pytree.leaves(params)]
        with no_grad():
            states = [self._new_state(leaf_, hyper) for leaf_ in leaves]
        return {"step": Tensor(leaf.data(np.array(0, np.int64), False)), "state": states}

    def apply(self, params: Any, grads: Any, state: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """``(new_params, new_state)`` after one step with the first group's hyperparameters; nothing is changed.

        params, grads: pytrees of one structure.   state: from :meth:`init` or the last call.
        """
        given, structure = pytree.flatten(params)
        leaves = [self._tensor(leaf_, "apply") for leaf_ in given]
        gradients = pytree.match(structure, grads, f"{type(self).__name__}.apply: grads")
        hyper = Hyper(self.param_groups[0])
        with no_grad():
            count = Tensor(ops.add(state["step"].node, 1))
            pairs = [
                self._update(param, self._tensor(grad, "apply"), own, count, hyper)
                for param, grad, own in zip(leaves, gradients, state["state"])
            ]
        new_states = [{**own, **new} for own, (_, new) in zip(state["state"], pairs)]
        return pytree.unflatten(structure, [param for param, _ in pairs]), {"step": count, "state": new_states}

    def _tensor(self, leaf_: Any, what: str) -> Tensor:
        if not isinstance(leaf_, Tensor):
            raise GradientError(f"{type(self).__name__}.{what}: a leaf is a {type(leaf_).__name__}, not a tensor")
        return leaf_

    # -- saving --------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Hyperparameters and state, as values that later steps do not change."""
        counts = {i: counter.value.detach() for counter in self._counters for i in counter.members}
        return {
            "state": {
                i: {name: value.detach() for name, value in own.items()}
                | ({"step": counts[i]} if i in counts else {})
                for i, own in enumerate(self._states)
                if own is not None
            },
            "param_groups": [
                {
                    **{name: value.item() for name, value in group.numbers.items()},
                    **{name: value for name, value in group.choices.items() if name not in group.numbers},
                    "params": [i for i, number in enumerate(self._group_of) if number == index],
                }
                for index, group in enumerate(self.param_groups)
            ],
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` of an optimizer of the same parameters gave.

        Raises ArgumentError or ShapeError if groups or shapes differ; then nothing was changed.
        """
        groups = values["param_groups"]
        expected = [
            [i for i, number in enumerate(self._group_of) if number == g] for g in range(len(self.param_groups))
        ]
        if [list(group["params"]) for group in groups] != expected:
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: groups of "
                f"{[len(group['params']) for group in groups]} parameters "
                f"do not fit groups of {[len(members) for members in expected]}"
            )
        for i, own in values["state"].items():
            for name, value in own.items():
                if name != "step" and tuple(value.shape) != self._params[int(i)].shape:
                    raise ShapeError(
                        f"{type(self).__name__}.load_state_dict: {name} of parameter {i} has shape "
                        f"{tuple(value.shape)}, the "
                        f"parameter {self._params[int(i)].shape}"
                    )
        for group, options in zip(self.param_groups, groups):
            for name, value in options.items():
                if name in group.numbers:
                    group._set_number(name, value)
                elif name != "params":
                    group[name] = value
        self._counters = []
        by_count: dict[int, set[int]] = {}
        for i, own in values["state"].items():
            position = int(i)
            dtype = self._params[position].dtype
            before = self._states[position] or {}
            self._states[position] = {
                name: before[name].assign(value)
                if name in before
                else Tensor(leaf.data(np.array(value, dtype.numpy), False))
                for name, value in own.items()
                if name != "step"
            }
            if "step" in own:
                by_count.setdefault(int(own["step"]), set()).add(position)
        for count, members in by_count.items():
            self._add_counter(count, members)
        guards.touch()

    def __repr__(self) -> str:
        lines = [f"  {group!r}," for group in self.param_groups]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])
