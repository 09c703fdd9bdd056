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
    which: Whole,
    cases: Whole,
    tiles: Whole,
    places: Whole,
    hops: Whole,
    lines: Whole,
    slots: Whole,
    per_port: Whole,
    per_neuron: Whole,
    per_line: Whole,
    per_multiplier: Whole,
    latest: Whole,
    pieces: Whole,
    short: Whole,
    starts: Whole,
    out: Whole,
) -> None:
    """Runs those of many layers that `which` names; sets out[., 0] to the cycle in which the last result is consumed,
    out[., 1] to the cycles between the last offer to the bus and the end, summed over the blocks that nothing
    overlaps, and out[., 2] to those that the busiest port sends for a block. All are given as 0.

    A row of `cases` holds the numbers that are named first thing below. Each of the `blocks` blocks of filters sends
    `folds` tiles of weights (tiles[., 0, p] entries on port p), then for `rows` x `columns` windows `folds` tiles of
    inputs: tiles[., 1, p] entries for the first window of a row, tiles[., 2, p] for the others; tiles[., 3, p] is the
    number of the port's load among different ones. The `filters` blocks of a group wait for `per_filter` results more
    each, groups for `per_group` more, samples for none; `apart` says that this is always all there are, so that blocks
    differ only in where the lines' turns stand. VN v is on the multipliers v*size ... v*size+size-1, the first of which
    passes the partial sums on. `places` are the places of the multipliers' packages in their ports' queues, in the rows
    of `tiles`. `slots` are the inputs of its bus line that VNs use, of `bus_inputs` per line. From `per_port` to
    `starts` it is room for own use: an allocation in here would bring in more functions to compile.
    """
    never = np.int64(1 << 62)
    recall = pieces.shape[2]
    # Loads by number: entries of weights, of inputs for the first window of a row and for others; when ports are free.
    weights = per_port[0]
    inputs = per_port[1]
    others = per_port[2]
    free = per_port[3]
    shared = per_port[4]
    row_entries = per_port[5]
    piece = per_port[6]
    queued = per_port[7]
    psum_free = per_port[8]
    # Where in `last` stands what a VN waits for in the first window of a row, and in others.
    last_begin = per_neuron
    # Per VN: the step it waits for, the fold of the result that comes back next, when its partial sum arrived.
    step_of = per_neuron[3]
    back = per_neuron[4]
    psum_at = per_neuron[5]
    due = per_neuron[6]
    # The bus: VNs of each line, chained; results waiting; whose turn it was last. The write queue.
    link = per_neuron[7]
    pending = per_neuron[8]
    chain = per_line[0]
    on_line = per_line[1]
    turn = per_line[2]
    active = per_line[3]
    arrived = per_line[4]
    last = per_multiplier
    written = per_multiplier[3]
    # Shared ports: the pieces in which they send without interruption, by the entry and the cycle of their beginnings.
    piece_entry = pieces[0]
    piece_cycle = pieces[1]
    furthest = short[0]
    seen_begin = short[1]
    seen_rest = short[2]
    for case in which:
        span = cases[case, 0]
        delta = cases[case, 1]
        count_of_lines = cases[case, 2]
        folds = cases[case, 3]
        rows = cases[case, 4]
        columns = cases[case, 5]
        bus_inputs = cases[case, 6]
        apart = cases[case, 7]
        blocks = cases[case, 8]
        groups = cases[case, 9]
        filters = cases[case, 10]
        per_filter = cases[case, 11]
        per_group = cases[case, 12]
        size = cases[case, 13]
        ports = cases[case, 14]
        neurons = cases[case, 15]
        kept = 1 if apart else blocks
        steps = rows * columns * folds
        sent_weights = tiles[case, 0]
        sent_inputs = tiles[case, 1]
        sent_others = tiles[case, 2]
        kind = tiles[case, 3]
        hop_of = hops[case]
        line = lines[case]
        slot = slots[case]
        # Ports that carry partial sums are followed one by one; the others only by load: equal loads are equal in time.
        kinds = np.int64(0)
        gaps = np.int64(0)
        for p in range(ports):
            shared[p] = 0
        for v in range(neurons):
            shared[v * size // span] = 1
        for p in range(ports):
            row_entries[p] = folds * (sent_inputs[p] + (columns - 1) * sent_others[p])
            piece[p] = queued[p] = psum_free[p] = piece_entry[p, 0] = piece_cycle[p, 0] = 0
            if shared[p]:
                gaps += sent_inputs[p] > 0 and sent_others[p] == 0
            if kind[p] >= 0:
                kinds = max(kinds, kind[p] + 1)
                weights[kind[p]] = sent_weights[p]
                inputs[kind[p]] = sent_inputs[p]
                others[kind[p]] = sent_others[p]
                free[kind[p]] = 0
                out[case, 2] = max(out[case, 2], folds * sent_weights[p] + rows * row_entries[p])
        # What a VN waits for, in the first window of a row and in others: per load the latest place plus hops; of every
        # shared port the multipliers that can be the last.
        total = np.int64(0)
        for v in range(neurons):
            for input_kind in range(2):
                place = places[case, 1 + input_kind]
                last_begin[input_kind, v] = total
                for other in range(kinds):
                    latest[input_kind, v, other] = -1
                for p in range(v * size // span, (v * size + size - 1) // span + 1):
                    for hop in range(2 * recall):
                        furthest[hop] = -1
                    for m in range(max(v * size + 1, p * span), min(v * size + size, p * span + span)):
                        if place[m] >= 0 and shared[p]:
                            furthest[hop_of[m]] = max(furthest[hop_of[m]], place[m])
                        elif place[m] >= 0:
                            latest[input_kind, v, kind[p]] = max(latest[input_kind, v, kind[p]], place[m] + hop_of[m])
                    begun = total
                    reached = np.int64(-1)
                    for hop in range(2 * recall - 1, -1, -1):
                        # With fewer hops only a later place can be the last; with more, unless a later one outdoes it.
                        if furthest[hop] > reached:
                            reached = furthest[hop]
                            while total > begun and last[1, total - 1] + last[2, total - 1] <= reached + hop:
                                total -= 1
                            last[0, total] = p
                            last[1, total] = reached
                            last[2, total] = hop
                            total += 1
                last_begin[input_kind + 1, v] = total
            step_of[v] = back[v] = pending[v] = 0
            psum_at[v] = 1
            due[v] = never
        for bus_line in range(count_of_lines):
            chain[bus_line] = -1
            on_line[bus_line] = 0
            turn[bus_line] = bus_inputs - 1
        for v in range(neurons - 1, -1, -1):
            link[v] = chain[line[v]]
            chain[line[v]] = v
        head = tail = count = arriving = now = done = added = rest = last_offer = np.int64(0)
        begin = np.int64(1)
        pushed_row = rows
        gate = soonest = never
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
                    for bus_line in range(count_of_lines):
                        per_line[5 + added, bus_line] = turn[bus_line]
                    seen_begin[added] = begin
                    seen_rest[added] = rest
                    for old in range(added):
                        alike = np.int64(0)
                        while alike < count_of_lines and per_line[5 + old, alike] == turn[alike]:
                            alike += 1
                        if alike == count_of_lines:
                            # The blocks old ... added-1 repeat from here on.
                            times = (blocks - added) // (added - old)
                            out[case, 0] += times * (begin - seen_begin[old])
                            out[case, 1] += times * (rest - seen_rest[old])
                            end -= times * (added - old)
                            break
                    if added == end:
                        last_offer = now
                        break
                starts[0, added % kept] = begin
                for load in range(kinds):
                    starts[load + 1, added % kept] = max(begin, free[load])
                    free[load] = starts[load + 1, added % kept] + folds * weights[load]
                    free[load] += rows * folds * (inputs[load] + (columns - 1) * others[load])
                    if others[load] == 0:
                        free[load] = max(free[load], begin + folds + ((rows - 1) * columns + inputs[load]) * folds)
                added += 1
                gate = never
                pushed_row = np.int64(0)
                for v in range(neurons):
                    if due[v] == never and step_of[v] == (added - 1) * steps:
                        due[v] = soonest = now
            # Rows of inputs enter the shared ports: all at once, as these never run dry within a block, unless a port
            # gets inputs in the first windows of rows only.
            while pushed_row < rows:
                pushed = begin
                if pushed_row:
                    pushed += folds + pushed_row * columns * folds
                if pushed > now + 1 and gaps:
                    break
                for p in range(ports):
                    if shared[p] and row_entries[p] and (pushed_row == 0 or sent_others[p] == 0):
                        at = piece[p] % recall
                        finish = piece_cycle[p, at] + queued[p] - piece_entry[p, at]
                        if finish < pushed:
                            piece[p] += 1
                            piece_entry[p, piece[p] % recall] = queued[p]
                            piece_cycle[p, piece[p] % recall] = max(pushed, psum_free[p])
                        if pushed_row == 0:
                            queued[p] += folds * sent_weights[p]
                        queued[p] += row_entries[p] * (rows if sent_others[p] else 1)
                pushed_row += 1
                if not gaps:
                    pushed_row = rows
            cycle = now + 1
            if count == 0 and head == tail and arriving == 0 and soonest > cycle:
                cycle = max(cycle, min(soonest, since - 1))
                if pushed_row < rows:
                    cycle = max(now + 1, min(cycle, begin + folds + pushed_row * columns * folds - 1))
            # Results arrive and are consumed; but for the last of a window they leave again at once, before any input.
            for position in range(arriving):
                written[tail % (4 * neurons)] = arrived[position]
                tail += 1
            for _ in range((tail - head + 1) // 2):
                v = written[head % (4 * neurons)]
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
                        entry = piece_entry[p, at] + leaves - piece_cycle[p, at]
                        piece[p] += 1
                        at = piece[p] % recall
                        piece_entry[p, at] = entry
                        piece_cycle[p, at] = leaves
                    piece_cycle[p, at] = max(piece_cycle[p, at], leaves + 1)
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
                        later = 1 if window else 0
                        when = psum_at[v] + hop_of[v * size]
                        for load in range(kinds):
                            if latest[later, v, load] >= 0:
                                value = starts[load + 1, block % kept] + folds * weights[load]
                                value += row * folds * (inputs[load] + (columns - 1) * others[load])
                                if others[load] == 0:
                                    value = max(value, starts[0, block % kept] + folds + row * columns * folds)
                                if window:
                                    value += folds * inputs[load] + ((window - 1) * folds + step) * others[load]
                                else:
                                    value += step * inputs[load]
                                when = max(when, value + latest[later, v, load] + delta)
                        for index in range(last_begin[later, v], last_begin[later + 1, v]):
                            p = last[0, index]
                            entry = block * (folds * sent_weights[p] + rows * row_entries[p]) + folds * sent_weights[p]
                            entry += row * row_entries[p] + last[1, index]
                            if window:
                                entry += folds * sent_inputs[p] + ((window - 1) * folds + step) * sent_others[p]
                            else:
                                entry += step * sent_inputs[p]
                            at = piece[p]
                            while at > piece[p] - recall and at > 0 and piece_entry[p, at % recall] > entry:
                                at -= 1
                            if entry >= queued[p]:
                                # Not even pushed: look again when that has happened.
                                when = max(when, cycle)
                            elif at > piece[p] - recall:
                                # What was sent before all remembered pieces is no longer on its way through the adders.
                                sent = piece_cycle[p, at % recall] + entry - piece_entry[p, at % recall]
                                when = max(when, sent + last[2, index] + delta)
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
            count = np.int64(0)
            for position in range(arriving):
                its = active[position]
                chosen = np.int64(-1)
                nearest = bus_inputs
                v = chain[its]
                while v >= 0:
                    distance = (slot[v] - turn[its] + bus_inputs - 1) % bus_inputs
                    if pending[v] and distance < nearest:
                        nearest = distance
                        chosen = v
                    v = link[v]
                pending[chosen] -= 1
                on_line[its] -= 1
                # A line with one user is always in the same state as far as that user can tell.
                if link[chain[its]] >= 0:
                    turn[its] = slot[chosen]
                arrived[position] = chosen
                if on_line[its]:
                    active[count] = its
                    count += 1
            now = cycle
        out[case, 0] += now
        out[case, 1] += rest + now - last_offer
