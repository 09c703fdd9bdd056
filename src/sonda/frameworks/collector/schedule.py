"""The schedule: which steps are spent on counting operations, which are recorded in detail, which are left out.

It is told what happens (a batch was fetched, a forward begins, an optimizer stepped) and knows nothing of PyTorch.
"""

from __future__ import annotations

COUNTED_SHAPES = 4
"""Steps with a new shape of input that are spent on counting; steps of further shapes have no FLOPs."""
FORWARDS_WITHOUT_BACKWARD = 8
"""A program that calls its model this often without a backward is not training: counting ends."""
IN_EVALUATION = 2
"""The same where the model is in evaluation mode, with gradients left on."""
MOST_SHAPES = 10_000
"""Shapes that are told apart; those of further inputs have the number 0."""
SAMPLED = 10
"""Once the file has reached its cap, every tenth step is recorded in detail; at twice the cap none is."""


KERNELS_FROM, KERNEL_STEPS = 5, 3
"""Of a program that uses a GPU, the steps whose kernels are recorded: late enough that libraries have chosen theirs."""


class Schedule:
    """`counting`, `kernels` and `detail` say how to record what comes next; `over` that observing has ended."""

    def __init__(
        self,
        count: bool = True,
        first: int = 0,
        last: int = 0,
        deadline: int = 0,
        size_cap: int = 0,
        profile: bool = False,
        replay: bool = False,
    ) -> None:
        self.count = count
        self.first = first
        self.last = last
        """Steps `first` up to but not including `last` are recorded in detail; `last` 0 means to the end."""
        self.deadline = deadline
        """On the recorder's clock, ns; 0 for none."""
        self.size_cap = size_cap
        self.profile = profile
        """Whether the kernels of some steps are recorded, where there is a GPU."""
        self.replay = replay
        """Whether a profiler outside replays the kernels of one step."""
        self.counting = False
        self.kernels = False
        self.detail = first == 0
        self.over = False
        self.steps = 0
        self.notes: list = []
        self._shapes: dict = {}
        self._stepped: set = set()
        self._counted_stepped: set = set()
        self._forwards = 0
        self._unlearned = 0
        """Forwards since the last backward."""

    def fresh(self) -> Schedule:
        """The same for another thread, which has steps of its own; what is to be noted comes together."""
        other = Schedule(self.count, self.first, self.last, self.deadline, self.size_cap, self.profile, self.replay)
        other.notes = self.notes
        return other

    def forward(self, shape: object, learns: bool, training: bool = True) -> int:
        """A forward of an outermost module begins; `learns` when a backward may follow. Returns the shape's number."""
        number = self._shapes.get(shape)
        new = number is None and len(self._shapes) < MOST_SHAPES
        if new:
            self._shapes[shape] = len(self._shapes) + 1
        number = self._shapes.get(shape, 0)
        if self.counting:
            self._forwards += 1
            most = FORWARDS_WITHOUT_BACKWARD if training else IN_EVALUATION
            if self._forwards > most or not learns:
                self.counting = False
        if new and not self.counting and self.count and self.detail and number <= COUNTED_SHAPES:
            self.counting = True
            self._forwards = 1
            self._counted_stepped = set()
        return number

    def forward_ended(self, learns: bool, now: int, written: int) -> None:
        """A forward without a graph has no backward to wait for; in a program that never trains it is a step."""
        if not learns:
            self.counting = False
        self._unlearned += 1
        if not self._stepped and (not learns or self._unlearned > FORWARDS_WITHOUT_BACKWARD):
            self.finished(now, written)

    def backward(self) -> None:
        self._forwards = self._unlearned = 0

    def fetched(self) -> None:
        """A batch is about to be fetched: after an optimizer step this is where the next step begins."""
        if self.counting and self._counted_stepped:
            self.counting = False

    def stepped(
        self, optimizer: int, now: int, written: int, others: frozenset = frozenset(), counted: bool = True
    ) -> None:
        """An optimizer finished its step. One that steps a second time has begun the next step.

        `others` are all optimizers that the program has, where that is known: once each has stepped, a counted step
        is over without waiting for the next one. `counted` is False where counting could not begin yet.
        """
        if self.counting and counted:
            if optimizer in self._counted_stepped:
                self.counting = False
            self._counted_stepped.add(optimizer)
            if others and others <= self._counted_stepped:
                self.counting = False
        if optimizer in self._stepped or not self._stepped:
            self._stepped = set()
            self.finished(now, written)
        self._stepped.add(optimizer)

    def finished(self, now: int, written: int) -> None:
        """A step is over: decide about the next one."""
        self.steps += 1
        if self.deadline and now > self.deadline:
            self.over = True
            self.notes.append(f"observing ended at its time limit, after {self.steps} steps")
        inside = self.steps >= self.first and (not self.last or self.steps < self.last)
        if self.size_cap and written > 2 * self.size_cap:
            inside = False
            self._note_once("layers of no step recorded", "twice the size cap")
        elif self.size_cap and written > self.size_cap:
            inside = inside and self.steps % SAMPLED == 0
            self._note_once("layers recorded for every tenth step only", "size cap")
        self.detail = inside
        begin = max(KERNELS_FROM, self.first)
        self.kernels = self.profile and inside and begin <= self.steps < begin + (1 if self.replay else KERNEL_STEPS)

    def _note_once(self, what: str, why: str) -> None:
        if not any(note.startswith(what) for note in self.notes):
            self.notes.append(f"{what}, from step {self.steps} on: {why}")
