"""Timing of the flexible dense engine where partial sums go back through the global buffer.

Every virtual neuron (VN) waits for its own last partial sum, and partial sums take the ports' slots from inputs, so
there is no closed form. Stepped are only cycles in which a result or a partial sum moves, and only VNs, not
multipliers: what a VN waits for is the latest of its inputs, and each port remembers where its sending was interrupted.
Activations that multipliers hand on to their neighbours are never what a VN waits for: between two steps of a VN lies
the way of a partial sum, which is longer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def fold(
    span: int,
    delta: int,
    lines: int,
    inputs: int,
    folds: int,
    rows: int,
    columns: int,
    blocks: int,
    groups: int,
    apart: int,
    filters: int,
    per_filter: int,
    per_group: int,
    size: int,
    neurons: int,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    line: Whole,
    slot: Whole,
    out: Whole,
) -> None:
    """Runs `blocks` blocks of filters; sets out[0] to the cycle in which the last result is consumed, and out[1] to the
    cycles between the last offer to the bus and the end, summed over the blocks that nothing overlaps.

    Each block sends `folds` tiles of weights (tiles[0, p] entries on port p), then for `rows` x `columns` windows
    `folds` tiles of inputs: tiles[1, p] entries for the first window of a row, tiles[2, p] for the others. The
    `filters` blocks of a group wait for `per_filter` results more each, groups for `per_group` more, samples for none;
    `apart` says that this is always all there are, so that blocks differ only in where the lines' turns stand. VN v is
    on the multipliers v*size ... v*size+size-1, the first of which passes the partial sums on. `places` are the places
    of the multipliers' packages in their ports' queues, in the rows of `tiles`. `slot` is the input of its bus line
    that a VN uses, of `inputs` per line.
    """
    never = 1 << 62
    ports = tiles.shape[1]
    kept = 1 if apart else blocks
    recall = 64
    steps = rows * columns * folds
    # Ports that carry partial sums are followed one by one; the others only by kind: equal loads are equal in time.
    shared = np.zeros(ports, np.int64)
    for v in range(neurons):
        shared[v * size // span] = 1
    kinds = 0
    kind_of = np.full(ports, -1, np.int64)
    load = np.zeros((ports, 3), np.int64)
    row_entries = np.zeros(ports, np.int64)
    gaps = False
    for p in range(ports):
        row_entries[p] = folds * (tiles[1, p] + (columns - 1) * tiles[2, p])
        if shared[p]:
            gaps = gaps or (tiles[1, p] > 0 and tiles[2, p] == 0)
        elif tiles[0, p]:
            for one in range(kinds):
                if load[one, 0] == tiles[0, p] and load[one, 1] == tiles[1, p] and load[one, 2] == tiles[2, p]:
                    kind_of[p] = one
            if kind_of[p] < 0:
                kind_of[p] = kinds
                for one in range(3):
                    load[kinds, one] = tiles[one, p]
                kinds += 1
    # What a VN waits for, in the first window of a row and in others: per kind the latest place plus hops; of every
    # shared port the multipliers that can be the last.
    latest = np.full((neurons, kinds + 1, 2), -1, np.int64)
    found = np.zeros((neurons, 3), np.int64)
    last = np.empty((2 * neurons * size, 3), np.int64)
    furthest = np.empty(2 * recall, np.int64)
    total = 0
    for v in range(neurons):
        for which in range(2):
            found[v, which] = total
            for p in range(v * size // span, (v * size + size - 1) // span + 1):
                for hop in range(2 * recall):
                    furthest[hop] = -1
                for m in range(max(v * size + 1, p * span), min(v * size + size, p * span + span)):
                    place = places[1 + which, m]
                    if place >= 0 and shared[p]:
                        furthest[hops[m]] = max(furthest[hops[m]], place)
                    elif place >= 0:
                        latest[v, kind_of[p], which] = max(latest[v, kind_of[p], which], place + hops[m])
                begun = total
                reached = -1
                for hop in range(2 * recall - 1, -1, -1):
                    # With fewer hops only a later place can be the last; with more, unless a later place outdoes it.
                    if furthest[hop] > reached:
                        reached = furthest[hop]
                        while total > begun and last[total - 1, 1] + last[total - 1, 2] <= reached + hop:
                            total -= 1
                        last[total, 0] = p
                        last[total, 1] = reached
                        last[total, 2] = hop
                        total += 1
            found[v, which + 1] = total
    # Shared ports: the pieces in which they send without interruption, by the entry and the cycle of their beginnings.
    piece_entry = np.zeros((ports, recall), np.int64)
    piece_cycle = np.zeros((ports, recall), np.int64)
    piece = np.zeros(ports, np.int64)
    queued = np.zeros(ports, np.int64)
    psum_free = np.zeros(ports, np.int64)
    # Per block under way: when it began, and when the ports of each kind began to send it.
    began = np.zeros(kept, np.int64)
    starts = np.zeros((kept, kinds + 1), np.int64)
    free = np.zeros(kinds + 1, np.int64)
    # Per VN: the step it waits for, the fold of the result that comes back next, when its partial sum arrived.
    step_of = np.zeros(neurons, np.int64)
    back = np.zeros(neurons, np.int64)
    psum_at = np.ones(neurons, np.int64)
    due = np.full(neurons, never, np.int64)
    # The bus: VNs of each line, chained; results waiting; whose turn it was last. The write queue.
    chain = np.full(lines, -1, np.int64)
    link = np.full(neurons, -1, np.int64)
    for v in range(neurons - 1, -1, -1):
        link[v] = chain[line[v]]
        chain[line[v]] = v
    pending = np.zeros(neurons, np.int64)
    on_line = np.zeros(lines, np.int64)
    turn = np.full(lines, inputs - 1, np.int64)
    active = np.empty(lines, np.int64)
    arrived = np.empty(lines, np.int64)
    written = np.empty(4 * neurons, np.int64)
    head = tail = count = arriving = 0
    seen_turn = np.zeros((recall, lines), np.int64)
    seen = np.zeros((recall, 2), np.int64)
    now = done = added = rest = 0
    begin = 1
    pushed_row = rows
    gate = soonest = never
    last_offer = 0
    end = blocks
    while done < neurons * steps * end:
        wait = added % filters * per_filter + added // filters % groups * per_group
        if gate == never and added < end and done >= wait:
            gate = now + 1
        since = gate
        if added and gate != never:
            since = max(begin + folds + steps, gate)
        if since <= now + 1:
            if added:
                if done == neurons * steps * added:
                    rest += since - 1 - last_offer
                begin = since
            if apart and end == blocks and added < recall:
                for one in range(lines):
                    seen_turn[added, one] = turn[one]
                seen[added, 0] = begin
                seen[added, 1] = rest
                for old in range(added):
                    one = 0
                    while one < lines and seen_turn[old, one] == turn[one]:
                        one += 1
                    if one == lines:
                        # The blocks old ... added-1 repeat from here on.
                        times = (blocks - added) // (added - old)
                        out[0] += times * (begin - seen[old, 0])
                        out[1] += times * (rest - seen[old, 1])
                        end -= times * (added - old)
                        break
                if added == end:
                    last_offer = now
                    break
            began[added % kept] = begin
            for one in range(kinds):
                starts[added % kept, one] = max(begin, free[one])
                free[one] = starts[added % kept, one] + folds * load[one, 0]
                free[one] += rows * folds * (load[one, 1] + (columns - 1) * load[one, 2])
                if load[one, 2] == 0:
                    free[one] = max(free[one], begin + folds + ((rows - 1) * columns + load[one, 1]) * folds)
            added += 1
            gate = never
            pushed_row = 0
            for v in range(neurons):
                if due[v] == never and step_of[v] == (added - 1) * steps:
                    due[v] = soonest = now
        # Rows of inputs enter the shared ports: all at once, as these never run dry within a block, unless a port gets
        # inputs in the first windows of rows only.
        while pushed_row < rows:
            pushed = begin
            if pushed_row:
                pushed += folds + pushed_row * columns * folds
            if pushed > now + 1 and gaps:
                break
            for p in range(ports):
                if shared[p] and row_entries[p] and (pushed_row == 0 or tiles[2, p] == 0):
                    at = piece[p] % recall
                    finish = piece_cycle[p, at] + queued[p] - piece_entry[p, at]
                    if finish < pushed:
                        piece[p] += 1
                        piece_entry[p, piece[p] % recall] = queued[p]
                        piece_cycle[p, piece[p] % recall] = max(pushed, psum_free[p])
                    if pushed_row == 0:
                        queued[p] += folds * tiles[0, p]
                    queued[p] += row_entries[p] * (rows if tiles[2, p] else 1)
            pushed_row += 1
            if not gaps:
                pushed_row = rows
        cycle = now + 1
        if count == 0 and head == tail and arriving == 0 and soonest > cycle:
            cycle = max(cycle, min(soonest, since - 1))
            if pushed_row < rows:
                cycle = max(now + 1, min(cycle, begin + folds + pushed_row * columns * folds - 1))
        # Results arrive and are consumed; but for the last of a window they leave again at once, before any input.
        for one in range(arriving):
            written[tail % len(written)] = arrived[one]
            tail += 1
        for _ in range((tail - head + 1) // 2):
            v = written[head % len(written)]
            head += 1
            done += 1
            back[v] += 1
            if back[v] == folds:
                back[v] = 0
                continue
            p = v * size // span
            leaves = max(cycle, psum_free[p])
            at = piece[p] % recall
            if piece_cycle[p, at] + queued[p] - piece_entry[p, at] > leaves:
                if piece_cycle[p, at] < leaves:
                    piece[p] += 1
                    piece_entry[p, piece[p] % recall] = piece_entry[p, at] + leaves - piece_cycle[p, at]
                piece_cycle[p, piece[p] % recall] = max(piece_cycle[p, piece[p] % recall], leaves + 1)
            psum_free[p] = leaves + 1
            psum_at[v] = leaves + delta
            due[v] = soonest = cycle
        if soonest <= cycle:
            soonest = never
            for v in range(neurons):
                # What is due now is found out anew: partial sums may have held up its inputs since.
                while due[v] <= cycle:
                    block = step_of[v] // steps
                    row = step_of[v] % steps // (columns * folds)
                    window = step_of[v] // folds % columns
                    step = step_of[v] % folds
                    which = 1 if window else 0
                    when = psum_at[v] + hops[v * size]
                    for one in range(kinds):
                        if latest[v, one, which] >= 0:
                            value = starts[block % kept, one] + folds * load[one, 0]
                            value += row * folds * (load[one, 1] + (columns - 1) * load[one, 2])
                            if load[one, 2] == 0:
                                value = max(value, began[block % kept] + folds + row * columns * folds)
                            if window:
                                value += folds * load[one, 1] + ((window - 1) * folds + step) * load[one, 2]
                            else:
                                value += step * load[one, 1]
                            when = max(when, value + latest[v, one, which] + delta)
                    for one in range(found[v, which], found[v, which + 1]):
                        p = last[one, 0]
                        entry = block * (folds * tiles[0, p] + rows * row_entries[p]) + folds * tiles[0, p]
                        entry += row * row_entries[p] + last[one, 1]
                        if window:
                            entry += folds * tiles[1, p] + ((window - 1) * folds + step) * tiles[2, p]
                        else:
                            entry += step * tiles[1, p]
                        at = piece[p]
                        while at > piece[p] - recall and at > 0 and piece_entry[p, at % recall] > entry:
                            at -= 1
                        if entry >= queued[p]:
                            # Not even pushed: look again when that has happened.
                            when = max(when, cycle)
                        elif at > piece[p] - recall:
                            # What was sent before all remembered pieces is no longer on its way through the adders.
                            sent = piece_cycle[p, at % recall] + entry - piece_entry[p, at % recall]
                            when = max(when, sent + last[one, 2] + delta)
                    # A sum that leaves its root adder is offered to the bus in the next cycle.
                    due[v] = when + 1
                    if due[v] > cycle:
                        break
                    last_offer = cycle
                    if on_line[line[v]] == 0:
                        at = count
                        while at > 0 and active[at - 1] > line[v]:
                            active[at] = active[at - 1]
                            at -= 1
                        active[at] = line[v]
                        count += 1
                    on_line[line[v]] += 1
                    pending[v] += 1
                    step_of[v] += 1
                    due[v] = cycle
                    psum_at[v] += 1
                    if step_of[v] % folds or step_of[v] == added * steps:
                        due[v] = never
                soonest = min(soonest, due[v])
        # Each line forwards one result, beginning after the input served last.
        arriving = count
        count = 0
        for one in range(arriving):
            its = active[one]
            chosen = -1
            nearest = inputs
            v = chain[its]
            while v >= 0:
                distance = (slot[v] - turn[its] + inputs - 1) % inputs
                if pending[v] and distance < nearest:
                    nearest = distance
                    chosen = v
                v = link[v]
            pending[chosen] -= 1
            on_line[its] -= 1
            # A line with one user is always in the same state as far as that user can tell.
            if link[chain[its]] >= 0:
                turn[its] = slot[chosen]
            arrived[one] = chosen
            if on_line[its]:
                active[count] = its
                count += 1
        now = cycle
    out[0] += now
    out[1] += rest + now - last_offer


def fold_all(
    span: int,
    delta: int,
    lines: int,
    inputs: int,
    which: Whole,
    cases: Whole,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    line: Whole,
    slot: Whole,
    out: Whole,
) -> None:
    """Those of many layers that `which` names, one after the other; a row of `cases` holds the numbers from `folds` to
    `neurons`."""
    for one in which:
        case = cases[one]
        fold(
            span, delta, lines, inputs, case[0], case[1], case[2], case[3], case[4], case[5], case[6], case[7],
            case[8], case[9], case[10], tiles[one], places[one], hops[one], line[one], slot[one], out[one],
        )  # fmt: skip
