"""The schedule: which steps are spent on counting operations, which are recorded in detail, which are left out.

It is told what happens (a batch was fetched, a forward begins, an optimizer stepped) and knows nothing of PyTorch.
"""

from __future__ import annotations

from .detail import DetailSample
from .shapes import CountedShapes, StepForwards
from .waits import Waits

FORWARDS_WITHOUT_BACKWARD = 8
"""A program that calls its model this often without a backward is not training: counting ends. One that had a backward
after more forwards, as where a cell is called for every element of a text, may call it twice as often."""
IN_EVALUATION = 2
"""The same where the model is in evaluation mode, with gradients left on."""
MOST_BACKWARDS = 1024
"""Backwards after which an optimizer that never stepped is taken for one that is not used."""
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
        self.sample: DetailSample | None = None
        """Which steps of a training have their layers recorded; None for all of them."""
        self._skipped = False
        """Whether the sample leaves out the layers of this step."""
        self._trained = False
        """Whether a forward that trains began in this step."""
        self.over = False
        self.steps = 0
        self.notes: list = []
        self._noted: set = set()
        """Kinds of the notes that are said once."""
        self.waits = Waits()
        """What a training waits for between an optimizer's step and a forward."""
        self.shapes = CountedShapes()
        self._step = StepForwards(self.shapes)
        self._stepped: set = set()
        self._ended: set = set()
        """Optimizers that have stepped since the last step ended."""
        self._counted_stepped: set = set()
        self._alone = False
        """Whether all that was counted are forwards without a graph, which have ended: a text may go on with them."""
        self._learned = False
        """Whether a forward with a graph was among what is counted."""
        self._forwards = 0
        self._unlearned = 0
        """Forwards since the last backward."""
        self._graphs = 0
        """Those with a graph."""
        self._most_graphs = 0
        """The most of these that came before a backward."""
        self.backwards = 0
        """Backwards since the last step."""

    def for_thread(self) -> Schedule:
        """A schedule with the same settings for another thread of this process.

        The thread has steps of its own. Both share the shapes that were counted, and the notes.
        """
        schedule = self.for_child()
        schedule.notes, schedule._noted = self.notes, self._noted
        schedule.shapes = self.shapes
        schedule._step = StepForwards(self.shapes)
        return schedule

    def for_child(self) -> Schedule:
        """A schedule with the same settings for a forked child, which counts and notes by itself."""
        schedule = Schedule(self.count, self.first, self.last, self.deadline, self.size_cap, self.profile, self.replay)
        schedule.sample = DetailSample() if self.sample is not None else None
        return schedule

    def shape_number(self, shape: object) -> tuple[int, bool]:
        """The number of this input's shape, and whether it was not known before."""
        return self.shapes.number(shape)

    def begin_forward(
        self, module: int, shape: int, learns: bool, training: bool = True, continues: bool = False
    ) -> None:
        """A forward of an outermost module begins, with an input of a numbered shape.

        `learns` when a backward may follow; `continues` when it goes on with the text of the forward before it.
        """
        if self.waits.open:
            self.waits.end()
        call = module, shape, training, learns
        if self.counting:
            self._go_on(learns, training, continues)
        wanted = self._step.meet(call, self.backwards > 0) and self.count and not self.counting
        if self._skipped:
            self._take_back(call, wanted)
        self._trained |= learns and training
        if wanted and self.detail and not continues and self.shapes.begin((module, learns), self):
            self.counting, self._alone, self._learned = True, False, False
            self._forwards = 1
            self._counted_stepped = set()
        if self.counting:
            self._step.count(call)

    def _go_on(self, learns: bool, training: bool, continues: bool) -> None:
        """While counting, one more forward begins: end counting where it cannot be of the step that is counted."""
        self._forwards += 1
        if self._alone:
            self.counting = continues or self._step.goes_on(learns)
        elif self._forwards > max(FORWARDS_WITHOUT_BACKWARD if training else IN_EVALUATION, 2 * self._most_graphs):
            self.counting = False
            self._step.break_off()
        elif self._counted_stepped and not learns:
            self.counting = False

    def _take_back(self, call: tuple, wanted: bool) -> None:
        """Record the layers of this step all the same where it is not like those of the sample.

        A sample is of whole steps: one that has begun stays as it is.
        """
        _, _, training, learns = call
        evaluates = not (learns and training)
        if self._trained:
            if evaluates:  # steps of more than one kind of forward are recorded whole
                self.sample = None
        elif evaluates or wanted:
            self.detail, self._skipped = True, False

    def end_forward(self, learns: bool, now: int, written: int) -> None:
        """A forward without a graph has no backward to wait for; in a program that never trains it is a step."""
        self._unlearned += 1
        self._graphs += learns
        self._learned |= learns
        self._alone = self.counting and not self._learned
        if not self._stepped and (not learns or self._unlearned > FORWARDS_WITHOUT_BACKWARD):
            if learns:
                self._step.leave()
            self.end_step(now, written)

    def begin_backward(self) -> None:
        self._most_graphs = max(self._most_graphs, self._graphs)
        self._forwards = self._unlearned = self._graphs = 0
        self.backwards += 1
        self._alone = False

    @property
    def is_waiting(self) -> bool:
        """Whether forwards without a graph were counted, and nothing is known to go on with them."""
        return self.counting and self._alone

    def end_step_by_hand(self, now: int, written: int, optimizes: bool | None) -> bool:
        """A batch is fetched, or a forward that learns begins: whether a step by hand is over.

        `optimizes`: there is an optimizer, which will step; None: one that never has so far.
        """
        if not self.backwards or optimizes or (optimizes is None and self.backwards <= MOST_BACKWARDS):
            return False
        self.backwards = 0
        self.counting = False
        self._step.end()
        self.end_step(now, written)
        return True

    def end_counting(self) -> None:
        """Counting has taken all that it may."""
        self.counting = False
        self.shapes.exhaust()
        self._note_once("counting ended", "because it took too long: steps that had not been counted have no FLOPs")

    def begin_fetch(self) -> None:
        """A batch is about to be fetched: after an optimizer step this is where the next step begins."""
        if self.waits.open:
            self.waits.end()
        if self.counting and (self._counted_stepped or self._alone):
            self.counting = False

    def end_optimizer_step(
        self,
        optimizer: int,
        now: int,
        written: int,
        others: frozenset = frozenset(),
        counted: bool = True,
        pairs: int = 0,
    ) -> None:
        """An optimizer finished its step. One that steps a second time has begun the next step.

        `others` are all optimizers that the program has, where that is known: once each has stepped, a counted step
        is over without waiting for the next one. `counted` is False where counting could not begin yet. `pairs` were
        recorded in this step, 0 where that is not known.
        """
        self.backwards = 0
        again = optimizer in self._ended
        self._ended.add(optimizer)
        if again or others <= self._ended:
            self._step.end(counted)
            self._ended = {optimizer} if again else set()
        if self.counting and counted:
            if optimizer in self._counted_stepped:
                self.counting = False
            self._counted_stepped.add(optimizer)
            if others and others <= self._counted_stepped:
                self.counting = False
        if optimizer in self._stepped or not self._stepped:
            self._stepped = set()
            self.end_step(now, written)
            self.waits.step()
            self._trained = False
            self._skipped = self.detail and self.sample is not None and not self.sample.choose(now, pairs)
            self.detail &= not self._skipped
        else:  # steps of several optimizers need not end where this one's do
            self.sample = None
        self._stepped.add(optimizer)
        self.waits.begin()

    def end_step(self, now: int, written: int) -> None:
        """A step is over: decide about the next one."""
        self.steps += 1
        self.apply_limits(now, written)
        inside = self.steps >= self.first and (not self.last or self.steps < self.last)
        if self.size_cap and written > 2 * self.size_cap:
            inside = False
            self._note_once("layers of no step recorded", f"from step {self.steps} on: twice the size cap")
        elif self.size_cap and written > self.size_cap:
            inside = inside and self.steps % SAMPLED == 0
            self._note_once("layers recorded for every tenth step only", f"from step {self.steps} on: size cap")
        self.detail = inside
        begin = max(KERNELS_FROM, self.first)
        self.kernels = self.profile and inside and begin <= self.steps < begin + (1 if self.replay else KERNEL_STEPS)

    def apply_limits(self, now: int, written: int) -> None:
        """End observing at its time limit, and detail at twice the size cap, also in the middle of a step."""
        if self.deadline and now > self.deadline and not self.over:
            self.over = True
            self._note_once("observing ended at its time limit", f"after {self.steps} steps")
        if self.size_cap and written > 2 * self.size_cap and (self.detail or self._skipped):
            self.detail = self._skipped = False
            self._note_once("layers of no step recorded", f"from step {self.steps} on: twice the size cap")

    def _note_once(self, kind: str, detail: str) -> None:
        if kind not in self._noted:
            self._noted.add(kind)
            self.notes.append(f"{kind}, {detail}")
