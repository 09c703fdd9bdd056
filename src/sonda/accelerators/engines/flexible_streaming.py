"""Timing of the flexible dense engine where nothing flows back: folds are summed on the way out, or there are none.

Ports send without a gap, so every arrival is known in advance: the result of a window leaves a virtual neuron (VN) at
the highest of a few straight lines over the windows, one per load of a port. What has to be stepped is only the way of
the results through the collection bus and the write queue, until that repeats, and the blocks that wait for results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def stream(
    which: Whole,
    cases: Whole,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    lines: Whole,
    delays: Whole,
    per_port: Whole,
    per_neuron: Whole,
    per_line: Whole,
    per_multiplier: Whole,
    levels: Whole,
    firsts: Whole,
    starts: Whole,
    out: Whole,
) -> None:
    """Runs those of many layers that `which` names; sets out[., 0] to the cycle in which the last result is consumed,
    out[., 1] to the cycles between the last offer to the bus and the end, summed over the blocks that nothing
    overlaps, and out[., 2], given as 0, to those that the busiest port sends for a block.

    A row of `cases` holds the numbers that are named first thing below. Each of the `blocks` blocks of filters sends
    `folds` tiles of weights (tiles[., 0, p] entries on port p), then for `rows` x `columns` windows `folds` tiles of
    inputs: tiles[., 1, p] entries for the first window of a row, tiles[., 2, p] for the others, which differ where
    inputs are `handed` on by neighbours; tiles[., 3, p] is the number of the port's load among different ones. The
    `filters` blocks of a group wait for `per_filter` results more each, groups for `per_group` more, samples for none.
    VN v is on the multipliers v*size ... v*size+size-1; `width` of them form a row of the filter. `places` are the
    places of the multipliers' packages in their ports' queues, in the rows of `tiles`. From `per_port` to `starts` it
    is room for own use: an allocation in here would bring in more functions to compile.
    """
    never = np.int64(1 << 62)
    # Loads by number: entries of weights, of inputs for the first window of a row and for others; of a whole block.
    weights, inputs, others = per_port[0], per_port[1], per_port[2]
    slopes, free, periods = per_port[3], per_port[4], per_port[5]
    lead, member, last_member = per_neuron[0], per_neuron[1], per_neuron[2]
    # Per group: the block, stretch (row) and window of its next result, its cycle; these when the first group last
    # offered a result.
    at_block, at_stretch, at_window = per_neuron[3], per_neuron[4], per_neuron[5]
    due, old_due, old_window = per_neuron[6], per_neuron[7], per_neuron[8]
    # These when the first group last finished a block.
    mark_block, mark_window, mark_due = per_neuron[9], per_neuron[10], per_neuron[11]
    users, queued, active = per_line[0], per_line[1], per_line[2]
    old_queued, mark_queued = per_line[3], per_line[4]
    # Where inputs are handed on: each multiplier's last product of the row before, and of the first window of this.
    ended = per_multiplier[0]
    opened = per_multiplier[1]
    for case in which:
        span, delta, count_of_lines = cases[case, 0], cases[case, 1], cases[case, 2]
        folds, rows, columns = cases[case, 3], cases[case, 4], cases[case, 5]
        handed, width = cases[case, 6], cases[case, 7]
        blocks, groups, filters = cases[case, 8], cases[case, 9], cases[case, 10]
        per_filter, per_group = cases[case, 11], cases[case, 12]
        size, ports, neurons = cases[case, 13], cases[case, 14], cases[case, 15]
        kind = tiles[case, 3]
        place = places[case, 1]
        later_place = places[case, 2]
        hop_of = hops[case]
        line = lines[case]
        delay = delays[case]
        steps = rows * columns * folds
        windows = columns if handed else rows * columns
        stretches = rows if handed else 1
        early = width if handed else 0
        # Ports with equal loads are equal in time.
        kinds = np.int64(0)
        for p in range(ports):
            if kind[p] >= 0:
                kinds = max(kinds, kind[p] + 1)
                weights[kind[p]] = tiles[case, 0, p]
                inputs[kind[p]] = tiles[case, 1, p]
                others[kind[p]] = tiles[case, 2, p]
        for load in range(kinds):
            slopes[load] = folds * (others[load] if handed else inputs[load])
            free[load] = 0
            periods[load] = folds * (weights[load] + rows * (inputs[load] + (columns - 1) * others[load]))
            out[case, 2] = max(out[case, 2], periods[load])
        # The last line: multipliers that are behind and catch up one product per cycle.
        slopes[kinds] = folds
        # So are VNs whose multipliers see equal loads at equal places; one of them stands for all.
        leads = np.int64(0)
        for v in range(neurons):
            member[v] = -1
            group: Any = leads
            for g in range(leads):
                other = lead[g] * size
                same = delay[v] == delay[lead[g]]
                for m in range(v * size, v * size + size):
                    if not same:
                        break
                    same = (
                        place[m] == place[other]
                        and later_place[m] == later_place[other]
                        and hop_of[m] == hop_of[other]
                        and kind[m // span] == kind[other // span]
                    )
                    other += 1
                if same:
                    group = g
                    break
            if group == leads:
                lead[leads] = v
                at_block[leads] = at_stretch[leads] = at_window[leads] = old_due[leads] = old_window[leads] = 0
                due[leads] = never
                leads += 1
            else:
                member[last_member[group]] = v
            last_member[group] = v
        for bus_line in range(count_of_lines):
            users[bus_line] = queued[bus_line] = old_queued[bus_line] = 0
        for v in range(neurons):
            users[line[v]] += 1
        if handed:
            for m in range(neurons * size):
                ended[m] = -never
        tries = block_tries = np.int64(64)
        old_cycle = old_done = old_written = old_arriving = np.int64(-1)
        mark = mark_done = mark_written = mark_arriving = np.int64(-1)
        per_block = neurons * rows * columns
        fresh = np.int64(1)
        count = added = written = arriving = done = now = wait = last_offer = rest = np.int64(0)
        begin = np.int64(1)
        soonest: Any = never
        total = neurons * rows * columns * blocks
        while done < total or added == 0:
            # Blocks begin one after the other, at the earliest when all tiles of the one before are in the queues.
            while added < blocks and done >= wait:
                if added:
                    since = max(begin + folds + steps, now + 1)
                    before = fresh
                    fresh = np.int64(0)
                    if done == per_block * added:
                        rest += since - 1 - last_offer
                        fresh = np.int64(1 - handed)
                        for load in range(kinds):
                            if free[load] > since:
                                fresh = np.int64(0)
                    # Blocks that begin with nothing under way, and wait for all of the one before, are all alike.
                    if before and fresh and wait == done:
                        left = np.int64(0)
                        while added + left + 1 < blocks:
                            other = added + left + 1
                            if (
                                other % filters * per_filter + other // filters % groups * per_group
                                != per_block * other
                            ):
                                break
                            left += 1
                        pace = since - begin
                        rest += left * (since - 1 - last_offer)
                        for g in range(leads):
                            at_block[g] += left
                        added += left
                        done += left * per_block
                        since += left * pace
                        now += left * pace
                        last_offer += left * pace
                    begin = since
                starts[0, added] = begin
                for load in range(kinds):
                    starts[load + 1, added] = max(begin, free[load])
                    free[load] = starts[load + 1, added] + periods[load]
                    if others[load] == 0:
                        free[load] = max(free[load], begin + folds + ((rows - 1) * columns + inputs[load]) * folds)
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
            offered = np.int64(0)
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
                        offered += g == 0
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
                        for load in range(kinds + 1):
                            levels[g, load] = -never
                        if not handed:
                            for m in range(v * size, v * size + size):
                                load = kind[m // span]
                                levels[g, load] = max(levels[g, load], place[m] + hop_of[m])
                            for load in range(kinds):
                                levels[g, load] += (
                                    starts[load + 1, block] + folds * weights[load] + (folds - 1) * inputs[load]
                                )
                                levels[g, load] += delta + delay[v]
                        else:
                            for window in range(early):
                                firsts[g, window] = 0
                            for base in range(v * size, v * size + size, width):
                                for s in range(width):
                                    load = kind[(base + s) // span]
                                    value = starts[load + 1, block] + folds * (weights[load] + stretch * inputs[load])
                                    if others[load]:
                                        value += stretch * folds * (columns - 1) * others[load]
                                    else:
                                        value = max(value, starts[0, block] + folds + stretch * columns * folds)
                                    value += (folds - 1) * inputs[load] + place[base + s] + delta
                                    opened[s] = max(value, ended[base + s] + folds)
                                # The last column's products of windows 1, 2, ... come at later + (window-1)*pace; the
                                # column s has them `behind` windows and cycles afterwards, or is behind by itself.
                                load = kind[(base + width - 1) // span]
                                pace = folds * others[load]
                                later = starts[load + 1, block] + folds * (weights[load] + (stretch + 1) * inputs[load])
                                later += stretch * (columns - 1) * pace + (folds - 1) * others[load]
                                later += later_place[base + width - 1] + delta
                                for s in range(width):
                                    hop = hop_of[base + s] + delay[v]
                                    behind = width - 1 - s
                                    late = -never
                                    when = opened[s]
                                    firsts[g, 0] = max(firsts[g, 0], when + hop)
                                    for window in range(1, min(early, windows)):
                                        if window <= behind:
                                            late = max(late, opened[s + window - 1] + (window - 1) * (1 - folds))
                                            when = opened[s + window] + window
                                        else:
                                            when = later + (window - behind - 1) * pace + behind
                                        when = max(when, late + window * folds)
                                        firsts[g, window] = max(firsts[g, window], when + hop)
                                    if windows > early:
                                        levels[g, kinds] = max(levels[g, kinds], late + hop)
                                        levels[g, load] = max(
                                            levels[g, load], later + behind - (behind + 1) * pace + hop
                                        )
                                        when = later + (windows - behind - 2) * pace + behind
                                        when = max(when, late + (windows - 1) * folds)
                                    ended[base + s] = when
                    if at_window[g] < early:
                        due[g] = firsts[g, at_window[g]]
                    else:
                        due[g] = 0
                        for load in range(kinds + 1):
                            due[g] = max(due[g], levels[g, load] + at_window[g] * slopes[load])
                    soonest = min(soonest, due[g])
            arriving = count
            remaining = np.int64(0)
            for position in range(count):
                queued[active[position]] -= 1
                if queued[active[position]]:
                    active[remaining] = active[position]
                    remaining += 1
            count = remaining
            now = cycle
            if count == arriving and count and soonest > now + 32 and (written + count) // 2 == written:
                # Nothing new for long, and every cycle as many are consumed as come: until a line runs empty.
                idle = soonest - now - 2
                if added < blocks:
                    idle = min(idle, (wait - done - 1) // count)
                for position in range(count):
                    idle = min(idle, queued[active[position]] - 1)
                if idle > 0:
                    for position in range(count):
                        queued[active[position]] -= idle
                    done += idle * count
                    now += idle
            if offered and at_window[0] == 0 and added == blocks and block_tries and not handed and due[0] != never:
                # The same state one block later, all blocks being in the queues: those that follow are alike if in no
                # group a port needs longer for a block than the pace, or is ahead of those that need as long.
                block_tries -= 1
                pace = now - mark
                changes = np.int64(0)
                changes += (written != mark_written) + (arriving != mark_arriving)
                left = first = blocks
                for g in range(leads):
                    changes += (at_window[g] != mark_window[g]) + (at_block[g] != mark_block[g] + 1)
                    changes += due[g] != mark_due[g] + pace
                    left = min(left, blocks - 1 - at_block[g])
                    first = min(first, at_block[g])
                    mark_window[g] = at_window[g]
                    mark_block[g] = at_block[g]
                    mark_due[g] = due[g]
                for bus_line in range(count_of_lines):
                    changes += queued[bus_line] != mark_queued[bus_line]
                    mark_queued[bus_line] = queued[bus_line]
                if changes == 0:
                    for load in range(kinds):
                        for block in range(first, blocks - 1):
                            changes += starts[load + 1, block + 1] != starts[load + 1, block] + periods[load]
                        for g in range(leads):
                            behind = np.int64(levels[g, load] < -(never >> 1))
                            for other in range(kinds):
                                gap = levels[g, other] - levels[g, load]
                                far = gap + (windows - 1) * (slopes[other] - slopes[load])
                                behind += (periods[load] <= pace) & (periods[other] == pace) & (gap >= 0) & (far >= 0)
                            changes += behind == 0
                if changes == 0 and left > 0:
                    for g in range(leads):
                        at_block[g] += left
                        due[g] += left * pace
                        old_window[g] = -2
                        for load in range(kinds):
                            if levels[g, load] > -(never >> 1):
                                levels[g, load] += left * periods[load]
                    done += left * (done - mark_done)
                    soonest += left * pace
                    now += left * pace
                    last_offer += left * pace
                    block_tries = np.int64(0)
                mark, mark_done = now, done
                mark_written, mark_arriving = written, arriving
            if offered == 0 or tries == 0 or at_window[0] < max(1, early):
                continue
            # The same state one window later, all leads on their steepest lines at the same slope: all windows that
            # follow in this stretch are alike. A line that was never idle may have grown, and goes on growing.
            tries -= 1
            pace = cycle - old_cycle
            alike = written == old_written and arriving == old_arriving
            left = windows
            for g in range(leads):
                steepest = np.int64(0)
                on_it = np.int64(0)
                for load in range(kinds + 1):
                    if levels[g, load] > -(never >> 1):
                        steepest = max(steepest, slopes[load])
                        if slopes[load] == pace and due[g] == levels[g, load] + at_window[g] * pace:
                            on_it += 1
                window = at_stretch[g] * windows + at_window[g]
                alike = (
                    alike and on_it > 0 and steepest == pace and at_window[g] >= early and window == old_window[g] + 1
                )
                alike = alike and due[g] == old_due[g] + pace and at_block[g] == at_block[0]
                left = min(left, windows - 1 - at_window[g])
                old_due[g] = due[g]
                old_window[g] = window
            for bus_line in range(count_of_lines):
                grown = queued[bus_line] - old_queued[bus_line]
                alike = alike and (grown == 0 or (grown > 0 and grown == users[bus_line] - pace))
                old_queued[bus_line] = queued[bus_line]
            if alike and added < blocks:
                served: Any = done - old_done
                left = min(left, (wait - done - 1) // max(1, served))
            if alike and left > 0:
                tries = np.int64(64)
                for g in range(leads):
                    at_window[g] += left
                    due[g] += left * pace
                for bus_line in range(count_of_lines):
                    if queued[bus_line]:
                        queued[bus_line] += left * max(0, users[bus_line] - pace)
                done += left * (done - old_done)
                soonest += left * pace
                now += left * pace
                last_offer += left * pace
            old_cycle, old_done = now, done
            old_written, old_arriving = written, arriving
        out[case, 0] = now
        out[case, 1] = rest + now - last_offer
