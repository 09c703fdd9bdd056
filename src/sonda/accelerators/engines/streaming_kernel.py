"""Timing of the flexible dense engine where nothing flows back: folds are summed on the way out, or there are none.

Ports send without a gap, so every arrival is known in advance: the result of a window leaves a virtual neuron (VN) at
the highest of a few straight lines over the windows, one per load of a port. What has to be stepped is only the way of
the results through the collection bus and the write queue, until that repeats, and the blocks that wait for results.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def stream(
    span: int,
    delta: int,
    lines: int,
    folds: int,
    rows: int,
    columns: int,
    handed: int,
    width: int,
    blocks: int,
    groups: int,
    filters: int,
    per_filter: int,
    per_group: int,
    size: int,
    neurons: int,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    line: Whole,
    delay: Whole,
    out: Whole,
) -> None:
    """Runs `blocks` blocks of filters; sets out[0] to the cycle in which the last result is consumed, and out[1] to the
    cycles between the last offer to the bus and the end, summed over the blocks that nothing overlaps.

    Each block sends `folds` tiles of weights (tiles[0, p] entries on port p), then for `rows` x `columns` windows
    `folds` tiles of inputs: tiles[1, p] entries for the first window of a row, tiles[2, p] for the others, which differ
    where inputs are `handed` on by neighbours. The `filters` blocks of a group wait for `per_filter` results more each,
    groups for `per_group` more, samples for none. VN v is on the multipliers v*size ... v*size+size-1; `width` of them
    form a row of the filter. `places` are the places of the multipliers' packages in their ports' queues, in the rows
    of `tiles`.
    """
    never = 1 << 62
    ports = tiles.shape[1]
    steps = rows * columns * folds
    windows = columns if handed else rows * columns
    stretches = rows if handed else 1
    early = width if handed else 0
    # Ports with equal loads are equal in time.
    kinds = 0
    kind_of = np.full(ports, -1, np.int64)
    load = np.zeros((ports, 3), np.int64)
    for p in range(ports):
        if tiles[0, p] == 0:
            continue
        for one in range(kinds):
            if load[one, 0] == tiles[0, p] and load[one, 1] == tiles[1, p] and load[one, 2] == tiles[2, p]:
                kind_of[p] = one
                break
        if kind_of[p] < 0:
            kind_of[p] = kinds
            load[kinds, 0], load[kinds, 1], load[kinds, 2] = tiles[0, p], tiles[1, p], tiles[2, p]
            kinds += 1
    slopes = np.empty(kinds + 1, np.int64)
    for one in range(kinds):
        slopes[one] = folds * load[one, 2 if handed else 1]
    # The last line: multipliers that are behind and catch up one product per cycle.
    slopes[kinds] = folds
    # So are VNs whose multipliers see equal loads at equal places; one of them stands for all.
    leads = 0
    lead = np.empty(neurons, np.int64)
    member = np.full(neurons, -1, np.int64)
    last_member = np.empty(neurons, np.int64)
    for v in range(neurons):
        joined = False
        for g in range(leads):
            other = lead[g] * size
            same = delay[v] == delay[lead[g]]
            for m in range(v * size, v * size + size):
                if not same:
                    break
                same = (
                    places[1, m] == places[1, other]
                    and places[2, m] == places[2, other]
                    and hops[m] == hops[other]
                    and kind_of[m // span] == kind_of[other // span]
                )
                other += 1
            if same:
                member[last_member[g]] = v
                last_member[g] = v
                joined = True
                break
        if not joined:
            lead[leads] = last_member[leads] = v
            leads += 1
    users = np.zeros(lines, np.int64)
    for v in range(neurons):
        users[line[v]] += 1
    # Per block still under way: when it began, and when the ports of each kind began to send it.
    began = np.zeros(blocks, np.int64)
    starts = np.zeros((blocks, kinds), np.int64)
    free = np.zeros(kinds, np.int64)
    # Per group: the block, stretch (row) and window of its next result, its cycle, and the lines it follows.
    at_block = np.zeros(leads, np.int64)
    at_stretch = np.zeros(leads, np.int64)
    at_window = np.zeros(leads, np.int64)
    due = np.full(leads, never, np.int64)
    level = np.zeros((leads, kinds + 1), np.int64)
    first = np.zeros((leads, early + 1), np.int64)
    # Where inputs are handed on: each multiplier's last product of the row before, and of the first window of this.
    ended = np.full(neurons * size, -never, np.int64)
    opened = np.zeros(width + 1, np.int64)
    queued = np.zeros(lines, np.int64)
    active = np.empty(lines, np.int64)
    # The state when the first group last offered a result.
    tries = 0 if handed else 64
    old_due = np.zeros(leads, np.int64)
    old_window = np.zeros(leads, np.int64)
    old_queued = np.zeros(lines, np.int64)
    old_cycle = old_done = old_written = old_arriving = -1
    count = added = 0
    written = arriving = done = now = wait = 0
    begin = 1
    soonest = never
    last_offer = rest = 0
    total = neurons * rows * columns * blocks
    while done < total or added == 0:
        # Blocks begin one after the other, at the earliest when all tiles of the one before are in the queues.
        while added < blocks and done >= wait:
            if added:
                since = max(begin + folds + steps, now + 1)
                if done == neurons * rows * columns * added:
                    rest += since - 1 - last_offer
                begin = since
            began[added] = begin
            for one in range(kinds):
                starts[added, one] = max(begin, free[one])
                free[one] = starts[added, one] + folds * load[one, 0]
                free[one] += rows * folds * (load[one, 1] + (columns - 1) * load[one, 2])
                if load[one, 2] == 0:
                    free[one] = max(free[one], begin + folds + ((rows - 1) * columns + load[one, 1]) * folds)
            added += 1
            wait = added % filters * per_filter + added // filters % groups * per_group
            for g in range(leads):
                if due[g] == never and at_block[g] == added - 1:
                    due[g] = soonest = -1
        cycle = now + 1
        if count == 0 and written == 0 and arriving == 0 and soonest > cycle:
            cycle = soonest
        written += arriving
        consumed = (written + 1) // 2
        written -= consumed
        done += consumed
        offered = False
        if soonest <= cycle:
            soonest = never
            for g in range(leads):
                if due[g] > cycle:
                    soonest = min(soonest, due[g])
                    continue
                refresh = due[g] == -1
                if not refresh:
                    v = lead[g]
                    while v >= 0:
                        if queued[line[v]] == 0:
                            active[count] = line[v]
                            count += 1
                        queued[line[v]] += 1
                        v = member[v]
                    last_offer = cycle
                    offered = offered or g == 0
                    at_window[g] += 1
                    if at_window[g] == windows:
                        at_window[g] = 0
                        at_stretch[g] += 1
                        refresh = True
                        if at_stretch[g] == stretches:
                            at_stretch[g] = 0
                            at_block[g] += 1
                            if at_block[g] == added:
                                due[g] = never
                                continue
                if refresh:
                    v = lead[g]
                    block = at_block[g]
                    stretch = at_stretch[g]
                    for one in range(kinds + 1):
                        level[g, one] = -never
                    if not handed:
                        for m in range(v * size, v * size + size):
                            one = kind_of[m // span]
                            level[g, one] = max(level[g, one], places[1, m] + hops[m])
                        for one in range(kinds):
                            level[g, one] += starts[block, one] + folds * load[one, 0] + (folds - 1) * load[one, 1]
                            level[g, one] += delta + delay[v]
                    else:
                        for window in range(early):
                            first[g, window] = 0
                        for base in range(v * size, v * size + size, width):
                            for s in range(width):
                                one = kind_of[(base + s) // span]
                                value = starts[block, one] + folds * (load[one, 0] + stretch * load[one, 1])
                                if load[one, 2]:
                                    value += stretch * folds * (columns - 1) * load[one, 2]
                                else:
                                    value = max(value, began[block] + folds + stretch * columns * folds)
                                value += (folds - 1) * load[one, 1] + places[1, base + s] + delta
                                opened[s] = max(value, ended[base + s] + folds)
                            # The last column's products of windows 1, 2, ... come at later + (window-1)*pace; the
                            # column s has them `behind` windows and cycles afterwards, or is behind on its own account.
                            one = kind_of[(base + width - 1) // span]
                            pace = folds * load[one, 2]
                            later = starts[block, one] + folds * (load[one, 0] + (stretch + 1) * load[one, 1])
                            later += stretch * (columns - 1) * pace + (folds - 1) * load[one, 2]
                            later += places[2, base + width - 1] + delta
                            for s in range(width):
                                hop = hops[base + s] + delay[v]
                                behind = width - 1 - s
                                late = -never
                                when = opened[s]
                                first[g, 0] = max(first[g, 0], when + hop)
                                for window in range(1, min(early, windows)):
                                    if window <= behind:
                                        late = max(late, opened[s + window - 1] + (window - 1) * (1 - folds))
                                        when = opened[s + window] + window
                                    else:
                                        when = later + (window - behind - 1) * pace + behind
                                    when = max(when, late + window * folds)
                                    first[g, window] = max(first[g, window], when + hop)
                                if windows > early:
                                    level[g, kinds] = max(level[g, kinds], late + hop)
                                    level[g, one] = max(level[g, one], later + behind - (behind + 1) * pace + hop)
                                    when = later + (windows - behind - 2) * pace + behind
                                    when = max(when, late + (windows - 1) * folds)
                                ended[base + s] = when
                if at_window[g] < early:
                    due[g] = first[g, at_window[g]]
                else:
                    due[g] = 0
                    for one in range(kinds + 1):
                        due[g] = max(due[g], level[g, one] + at_window[g] * slopes[one])
                soonest = min(soonest, due[g])
        arriving = count
        remaining = 0
        for one in range(count):
            queued[active[one]] -= 1
            if queued[active[one]]:
                active[remaining] = active[one]
                remaining += 1
        count = remaining
        now = cycle
        if count == arriving and count and soonest > now + 32 and (written + count) // 2 == written:
            # Nothing new for long, and every cycle as many are consumed as come: until a line runs empty.
            idle = soonest - now - 2
            if added < blocks:
                idle = min(idle, (wait - done - 1) // count)
            for one in range(count):
                idle = min(idle, queued[active[one]] - 1)
            if idle > 0:
                for one in range(count):
                    queued[active[one]] -= idle
                done += idle * count
                now += idle
        if not offered or tries == 0 or at_window[0] == 0:
            continue
        # The same state one window later, all leads on their steepest lines at the same slope: all windows that follow
        # are alike. A line that was never idle may have grown, and goes on growing.
        tries -= 1
        pace = cycle - old_cycle
        alike = written == old_written and arriving == old_arriving
        left = windows
        for g in range(leads):
            steepest = 0
            for one in range(kinds):
                if level[g, one] >= 0:
                    steepest = max(steepest, slopes[one])
            alike = alike and steepest == pace and due[g] == old_due[g] + pace and at_window[g] == old_window[g] + 1
            on_it = False
            for one in range(kinds):
                on_it = on_it or (slopes[one] == pace and due[g] == level[g, one] + at_window[g] * pace)
            alike = alike and on_it and at_block[g] == at_block[0]
            left = min(left, windows - 1 - at_window[g])
            old_due[g] = due[g]
            old_window[g] = at_window[g]
        for one in range(lines):
            grown = queued[one] - old_queued[one]
            alike = alike and (grown == 0 or (grown > 0 and grown == users[one] - pace))
            old_queued[one] = queued[one]
        if alike and added < blocks:
            left = min(left, (wait - done - 1) // max(1, done - old_done))
        if alike and left > 0:
            tries = 64
            for g in range(leads):
                at_window[g] += left
                due[g] += left * pace
            for one in range(lines):
                if queued[one]:
                    queued[one] += left * max(0, users[one] - pace)
            done += left * (done - old_done)
            soonest += left * pace
            now += left * pace
            last_offer += left * pace
        old_cycle, old_done, old_written, old_arriving = now, done, written, arriving
    out[0] = now
    out[1] = rest + now - last_offer


def stream_all(
    span: int,
    delta: int,
    lines: int,
    which: Whole,
    cases: Whole,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    line: Whole,
    delay: Whole,
    out: Whole,
) -> None:
    """Those of many layers that `which` names, one after the other; a row of `cases` holds the numbers from `folds` to
    `neurons`."""
    for one in which:
        case = cases[one]
        stream(
            span, delta, lines, case[0], case[1], case[2], case[3], case[4], case[5], case[6], case[7], case[8],
            case[9], case[10], case[11], tiles[one], places[one], hops[one], line[one], delay[one], out[one],
        )  # fmt: skip
