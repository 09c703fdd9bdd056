"""The schedule decides which steps are used for counting operations, and which are recorded in detail.

Observers tell it what happens: a batch is fetched, a forward begins, an optimizer stepped. It knows nothing of PyTorch.
"""

from __future__ import annotations

from .detail import DetailSample
from .shapes import CountedShapes, StepForwards
from .waits import Waits

FORWARDS_WITHOUT_BACKWARD = 8
"""Counting ends in a program that calls its model so often without a backward: it does not train. Where a backward came
after more forwards before (a cell is called for every element of a text), twice as many are allowed."""
IN_EVALUATION = 2
"""The same limit where the model is in evaluation mode, with gradients on."""
MOST_BACKWARDS = 1024
"""After so many backwards, an optimizer that never stepped counts as unused."""
BARE_STEPS = 2
"""After so many steps without a module, the program is taken to call functions only."""
FUNCTIONS = (0, True)
"""Stands for the module that such a program has not."""
SAMPLED = 10
"""Once the file has reached its size cap, one in so many steps is recorded in detail; at twice the cap none is."""
KERNELS_FROM, KERNEL_STEPS = 5, 3
"""The steps whose kernels are recorded in a program that uses a GPU: late enough that libraries have chosen kernels."""


class Schedule:
    """`counting`, `kernels` and `detail` say how to record what comes next; `over` says that observing has ended."""

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
        """Steps from `first` to before `last` are recorded in detail; `last` 0 means to the end."""
        self.deadline = deadline
        """On the recorder's clock, ns; 0 for none."""
        self.size_cap = size_cap
        self.profile = profile
        """Whether the kernels of some steps are recorded, where there is a GPU."""
        self.replay = replay
        """Whether an external profiler replays the kernels of one step."""
        self.counting = False
        self.kernels = False
        self.detail = first == 0
        self.sample: DetailSample | None = None
        """Chooses the training steps whose layers are recorded; None: the layers of all steps are."""
        self._skipped = False
        """Whether the sample leaves out the layers of this step."""
        self._trained = False
        """Whether a training forward began in this step."""
        self.over = False
        self.steps = 0
        self.notes: list = []
        self._noted: set = set()
        """Kinds of the notes that are said once."""
        self.waits = Waits()
        """How long a training waits between an optimizer's step and a forward."""
        self.shapes = CountedShapes()
        self._step = StepForwards(self.shapes)
        self._stepped: set = set()
        """Optimizers that have stepped in this step; one that steps again ends it."""
        self._ended: set = set()
        """Optimizers that have stepped since the last step ended, for the choice of counted steps."""
        self._counted_stepped: set = set()
        """Optimizers that have stepped since counting began."""
        self._alone = False
        """Whether only forwards without a graph were counted, and have ended: a generated text may continue them."""
        self._learned = False
        """Whether a forward with a graph was counted."""
        self._forwards = 0
        """Forwards since counting began, or since the last backward."""
        self._unlearned = 0
        """Forwards since the last backward."""
        self._graphs = 0
        """Forwards since the last backward, from the first with a graph on."""
        self._most_graphs = 0
        """The most of them that came before one backward."""
        self._called = False
        """Whether a forward of a module ever began."""
        self._bare_steps = 0
        """Steps of optimizers behind a backward, of a program that has called no module so far."""
        self._counted_bare = False
        """Whether one of these was counted."""
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

    @property
    def runs_usual_steps(self) -> bool:
        """Whether the program makes steps, and none of them is counted now."""
        return (self._called or self.steps > 0) and not self.counting

    def shape_number(self, shape: object) -> tuple[int, bool]:
        """The number of this input's shape, and whether the shape is new."""
        return self.shapes.number(shape)

    def begin_forward(
        self, module: int, shape: int, learns: bool, training: bool = True, continues: bool = False
    ) -> None:
        """A forward of an outermost module begins, with an input of a numbered shape.

        `learns`: a backward may follow. `continues`: it continues the text of the forward before it.
        """
        if self.waits.open:
            self.waits.end()
        call = module, shape, training, learns
        self._called = True
        if self.counting:
            self._check_counting(call, continues)
        wanted = self._step.begin_forward(call, self.backwards > 0) and self.count and not self.counting
        if self._skipped:
            self._check_skipping(call, wanted)
        self._trained |= learns and training
        if wanted and self.detail and not continues and self.shapes.begin((module, learns), self):
            self.counting, self._alone, self._learned = True, False, False
            self._forwards = 1
            self._counted_stepped = set()
        if self.counting:
            self._step.count(call)

    def _check_counting(self, call: tuple, continues: bool) -> None:
        """End counting where the forward that begins cannot belong to the counted step."""
        _, _, training, learns = call
        self._forwards += 1
        if self._alone:
            self.counting = continues or self._step.continues(call)
        elif self._forwards > max(FORWARDS_WITHOUT_BACKWARD if training else IN_EVALUATION, 2 * self._most_graphs):
            self.counting = False
            self._step.break_off()
        elif self._counted_stepped and not learns:
            self.counting = False

    def _check_skipping(self, call: tuple, wanted: bool) -> None:
        """Record the layers of this step after all, where it differs from the steps of the sample.

        A sample consists of whole steps: a step that has begun is not changed.
        """
        _, _, training, learns = call
        evaluates = not (learns and training)
        if self._trained:
            if evaluates:  # steps with several kinds of forwards are all recorded
                self.sample = None
        elif evaluates or wanted:
            self.detail, self._skipped = True, False

    def end_forward(self, learns: bool, now: int, written: int) -> None:
        """A forward ended. Without a graph no backward can follow: in a program that never trains it is a step."""
        self._unlearned += 1
        self._graphs += learns or self._graphs > 0
        self._learned |= learns
        self._alone = self.counting and not self._learned
        if not self._stepped and (not learns or self._unlearned > FORWARDS_WITHOUT_BACKWARD):
            if learns:
                self._step.discard()
            self.end_step(now, written)

    def begin_backward(self) -> None:
        """A backward begins."""
        self._most_graphs = max(self._most_graphs, self._graphs)
        self._forwards = self._unlearned = self._graphs = 0
        self.backwards += 1
        self._alone = False

    @property
    def bare(self) -> bool:
        """Whether the program trains, and calls functions only."""
        return not self._called and self._bare_steps >= BARE_STEPS

    @property
    def learned(self) -> bool:
        """Whether a forward with a graph was counted in the step that is counted."""
        return self.counting and self._learned

    @property
    def is_waiting(self) -> bool:
        """Whether only forwards without a graph were counted, and nothing has continued them yet."""
        return self.counting and self._alone

    def end_step_by_hand(self, now: int, written: int, optimizes: bool | None) -> bool:
        """A batch is fetched, or a forward that learns begins: end a step without an optimizer, if there was one.

        Returns whether a step ended. `optimizes`: an optimizer is in use, and ends the steps; None: there is one that
        has never stepped so far.
        """
        if not self.backwards or optimizes or (optimizes is None and self.backwards <= MOST_BACKWARDS):
            return False
        self.backwards = 0
        self.counting = False
        self._step.end()
        self.end_step(now, written)
        return True

    def end_counting(self) -> None:
        """End counting for good: it has taken too much time."""
        self.counting = False
        self.shapes.exhaust()
        self._note_once("counting ended", "because it took too long: steps that had not been counted have no FLOPs")

    def note_foretold(self, foretold: int, operations: int, checked: int, wrong: int) -> None:
        """Note that so many of a counted step's operations were taken for what followed the one before them earlier,
        and not looked at; and how many of those that were `checked` differed."""
        if foretold:
            self._note_once(
                "FLOPs and bytes of a step with many operations are estimated",
                f"{foretold} of {operations} operations of the counted step are taken for those that followed the same "
                f"ones before; {wrong} of {checked} that were checked differed",
            )

    def begin_fetch(self) -> None:
        """A batch is about to be fetched. After an optimizer's step, the next step begins here."""
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

        `others` are all optimizers of the program, where they are known: a counted step ends once each has stepped.
        `counted` is False where counting could not begin yet. `pairs`: begins and ends recorded in this step, 0 where
        that is not known.
        """
        self._bare_steps += bool(self.backwards)
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
            self.waits.end_step()
            self._trained = False
            self._skipped = self.detail and self.sample is not None and not self.sample.choose(now, pairs)
            self.detail &= not self._skipped
        else:  # with several optimizers, steps need not end with this one
            self.sample = None
        self._stepped.add(optimizer)
        self.waits.begin()
        if self.bare and not self._counted_bare and self.count and self.detail and not self.counting:
            self._count_bare_step()

    def _count_bare_step(self) -> None:
        """Count the next step from here on: no forward of a module tells where it begins."""
        if self.shapes.affords(FUNCTIONS) and self.shapes.begin(FUNCTIONS, self):
            self.counting, self._alone, self._learned, self._counted_bare = True, False, True, True
            self._forwards = 0
            self._counted_stepped = set()

    def end_step(self, now: int, written: int) -> None:
        """A step ended at `now` (ns), with `written` bytes in the file: decide about the next one."""
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
