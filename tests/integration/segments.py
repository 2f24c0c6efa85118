#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Segments of a task, as brokerctl run --profile, why and trace show them.

    segments.py BROKERCTL BROKERD PAGE

A broker with two software devices cuts the plans of small models: a chain with one value that skips the middle, two
branches that meet again, and a chain of rows, which stream through its segments in micro-batches. PAGE is brokerctl's manual, which lists the members of a segment.
"""
import array
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import onnxfile as onnx
from started import LIMIT, Broker, expect, start, wait_for

CTL, BROKERD, PAGE = map(os.path.abspath, sys.argv[1:4])
N_NODES, ROW_BYTES = 9, 64 * 64 * 4
N_ROWS, MOST_BATCHES = 500, 8
SIDE = 512
MATRIX_BYTES = 4 * SIDE * SIDE
# Tasks of a plan that is cut which have begun
MOST_AT_ONCE = 8
LABELS = ('CPU', 'GPU1', 'GPU2')


def make_model(folder):
    """y = x through N_NODES nodes; the last one adds what the first one wrote."""
    nodes = [onnx.node('Neg' if i % 2 else 'Tanh', [f't{i - 1}' if i else 'x'], [f't{i}'], f'node{i}')
             for i in range(N_NODES - 1)]
    nodes.append(onnx.node('Add', [f't{N_NODES - 2}', 't0'], ['y'], f'node{N_NODES - 1}'))
    inputs, outputs = ([(name, onnx.FLOAT, [64, 64])] for name in 'xy')
    model = onnx.write(os.path.join(folder, 'chain.onnx'), onnx.model(nodes, inputs, outputs))
    values = onnx.npy(os.path.join(folder, 'x.npy'), onnx.FLOAT, [64, 64], [i / 4096 for i in range(4096)])
    return model, values


def make_branches(folder):
    """y = the sum of two chains of four nodes, from what one node makes of x."""
    nodes = [onnx.node('Tanh', ['x'], ['h'], 'head')]
    for side in 'lr':
        names = ['h'] + [f'{side}{i}' for i in range(4)]
        nodes += [onnx.node('Sin' if i % 2 else 'Cos', [names[i]], [names[i + 1]], names[i + 1]) for i in range(4)]
    nodes.append(onnx.node('Add', ['l3', 'r3'], ['y'], 'tail'))
    inputs, outputs = ([(name, onnx.FLOAT, [64, 64])] for name in 'xy')
    return onnx.write(os.path.join(folder, 'branches.onnx'), onnx.model(nodes, inputs, outputs))


def make_rows(folder):
    """y = x but for signs, through N_NODES nodes, row by row: any device computes the same."""
    names = ['x'] + [f't{i}' for i in range(N_NODES - 1)] + ['y']
    nodes = [onnx.node('Abs' if i % 3 else 'Neg', [names[i]], [names[i + 1]], f'node{i}') for i in range(N_NODES)]
    inputs, outputs = ([(name, onnx.FLOAT, ['rows', 64])] for name in 'xy')
    model = onnx.write(os.path.join(folder, 'rows.onnx'), onnx.model(nodes, inputs, outputs))
    values = onnx.npy(os.path.join(folder, 'rows.npy'), onnx.FLOAT, [N_ROWS, 64], [i / 8 for i in range(N_ROWS * 64)])
    return model, values


def make_matrices(folder, side=SIDE):
    """y = the product of two chains of products of x with eight different matrices."""
    names, nodes, matrices = ['x'] * 2, [], []
    for i in range(8):
        matrices.append(onnx.tensor(f'w{i}', onnx.FLOAT, [side, side], array.array('f', [(i + 1) / side] * side * side)))
        nodes.append(onnx.node('MatMul', [names[i % 2], f'w{i}'], [f't{i}'], f'product{i}'))
        names[i % 2] = f't{i}'
    nodes.append(onnx.node('Mul', names, ['y'], 'tail'))
    inputs, outputs = ([(name, onnx.FLOAT, [side, side])] for name in 'xy')
    model = onnx.write(os.path.join(folder, 'matrices.onnx'), onnx.model(nodes, inputs, outputs, matrices))
    values = onnx.npy(os.path.join(folder, 'matrix.npy'), onnx.FLOAT, [side, side],
                      array.array('f', [1] * side * side).tobytes())
    return model, values


def ctl(broker, *arguments):
    result = subprocess.run([CTL, '--socket', broker.socket, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, timeout=LIMIT, check=False, text=True)
    expect(result.returncode == 0, arguments, 'ended with', result.returncode, result.stdout, result.stderr)
    return result.stdout


def check_segments(segments):
    """The segments are all nodes, in order; each reads of earlier ones, and the last one of the first."""
    expect(len(segments) > 2, 'the plan is not cut', segments)
    node = 0
    for i, segment in enumerate(segments):
        expect(segment['segment'] == i and segment['first_node'] == node, segments)
        node += segment['nodes']
        expect(segment['device'] in (0, 1, 2) and segment['exec_ns'] > 0, segment)
        expect(segment['from'] == sorted(segment['from']) and all(j < i for j in segment['from']), segment)
        expect(segment['crossed_bytes'] == ROW_BYTES * len(segment['from']), segment)
    expect(node == N_NODES, segments)
    expect(segments[0]['from'] == [] and segments[-1]['from'] == [0, len(segments) - 2], segments)


def documented():
    with open(PAGE, encoding='utf-8') as file:
        item = file.read().split('.It Dq segment\n')[1].split('.It Dq ')[0]
    return set(re.findall(r'[a-z_]+', ' '.join(re.findall(r'^\.Va (.*)$', item, re.MULTILINE))))


def check_times(why):
    """The segments on the critical path add up to the task's time, as do its causes."""
    total = sum(segment['wait_ns'] + segment['exec_ns'] for segment in why['segments'] if segment['critical'])
    expect(abs(total - why['total_ns']) <= 0.001 * total, total, why)
    expect(abs(sum(cause['ns'] for cause in why['causes']) - total) <= 0.001 * total, why)


def check_why(broker, index):
    """Return the segments of a task, which add up to its time."""
    why = json.loads(ctl(broker, 'why', 'task', f'#{index}', '--json'))
    segments = why['segments']
    check_segments(segments)
    expect(set(segments[0]) == documented(), set(segments[0]) ^ documented())
    check_times(why)
    path = [fact for fact in why['facts'] if fact.startswith('its segments ran one after the other: ')]
    expect(all(segment['critical'] for segment in segments), segments)
    expect(len(path) == 1 and f' of {len(segments)} segments)' in path[0], why['facts'])
    for device in {segment['device'] for segment in segments}:
        expect(f'% on {LABELS[device]} (' in path[0], path, segments)
    rows = ctl(broker, 'why', 'task', f'#{index}').split('Segments\n')[1].splitlines()
    expect(len([row for row in rows if row.strip()]) == 1 + len(segments), rows)
    return segments


def slices_of(events, index, segments):
    """Return the slices of a task's segments, each of which begins after those that it reads of."""
    slices = [event for event in events if event.get('cat') == 'execution' and event['args']['index'] == index]
    slices.sort(key=lambda event: event['args']['segment'])
    expect([event['args']['segment'] for event in slices] == list(range(len(segments))), slices)
    for event, segment in zip(slices, segments):
        expect(all(event['ts'] >= slices[j]['ts'] + slices[j]['dur'] for j in segment['from']),
               'a segment began too early', slices)
    return slices


def check_trace(events, index, segments):
    """Each segment has a slice on its device, and an arrow from each segment that it reads of."""
    slices = slices_of(events, index, segments)
    tracks = {(event['pid'], event['tid']): event['args']['name'] for event in events
              if event['name'] == 'thread_name'}
    for event, segment in zip(slices, segments):
        expect(event['name'].endswith(f' {event["args"]["segment"] + 1}/{len(segments)}'), event)
        expect(event['args']['segments'] == len(segments) and event['args']['exec_ns'] == segment['exec_ns'], event)
        expect(tracks[event['pid'], event['tid']].startswith(LABELS[segment['device']] + ' '), event, tracks)
    arrows = {}
    for event in events:
        if event['name'] == 'crossed':
            arrows.setdefault(event['id'], {})[event['ph']] = event
    found = []
    for arrow in arrows.values():
        expect(set(arrow) == set('sf'), arrow)
        places = [[i for i, event in enumerate(slices) if (event['pid'], event['tid']) == (end['pid'], end['tid'])
                   and event['ts'] <= end['ts'] <= event['ts'] + event['dur']] for end in (arrow['s'], arrow['f'])]
        if all(places):
            found.append((places[0][0], places[1][0]))
    expect(sorted(found) == sorted((j, i) for i, segment in enumerate(segments) for j in segment['from']), found)


def check_svg(broker, events):
    """The picture has a bar for each execution, and a lane for each device."""
    picture = xml.etree.ElementTree.fromstring(ctl(broker, 'trace', '--svg'))
    space = '{http://www.w3.org/2000/svg}'
    executions = [event for event in events if event.get('cat') == 'execution']
    bars, texts = picture.findall(space + 'rect'), [text.text for text in picture.findall(space + 'text')]
    expect(len(bars) == len(executions), len(bars), len(executions))
    expect({event['args']['device'] for event in executions} <= set(texts), texts)
    expect(texts[0].startswith(f'{len(executions)} executions in '), texts)
    for bar in bars:
        left, width = float(bar.get('x')), float(bar.get('width'))
        expect(110 <= left and left + width <= 931 and width > 0, bar.attrib)
    # Segments of one tenant's tasks have colours in turn.
    expect(len({bar.get('fill') for bar in bars}) > 1, 'one colour')


def check_counts(broker, n_tasks, n_segments):
    """Devices have the segments of all tasks, and of those in flight. Some device was idle between two segments."""
    devices = [device for line in ctl(broker, 'tenants', '--json').splitlines()
               for device in json.loads(line)['devices']]
    n_ran = sum(device['segments'] for device in devices)
    expect(0 <= n_ran - n_tasks * n_segments <= MOST_AT_ONCE * n_segments, n_ran, n_tasks, n_segments)
    for device in devices:
        expect(device['bubble_ns'] == 0 or device['segments'] > 1, device)
    expect(any(device['bubble_ns'] > 0 for device in devices), devices)


def n_tasks(broker):
    return sum(json.loads(line)['tasks'] for line in ctl(broker, 'plans', '--json').splitlines())


def run_until_stopped(broker, model, values, *options, least=100):
    """A client that is stopped keeps its tenant's page, and runs no tasks that would overwrite the last ones."""
    client = start([CTL, '--socket', broker.socket, 'run', '--repeat=1000000', *options, '--input=x=' + values, model],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: n_tasks(broker) > least, 'no tasks')
    client.send_signal(signal.SIGSTOP)
    # A task may be in flight.
    wait_for(lambda: n_tasks(broker) == n_tasks(broker), 'tasks go on')
    return client


def check_logged(broker, model, values):
    client = run_until_stopped(broker, model, values)
    events = json.loads(ctl(broker, 'trace', '--output=-'))['traceEvents']
    index = max(event['args']['index'] for event in events if event['ph'] == 'X')
    segments = check_why(broker, index)
    last = [json.loads(ctl(broker, 'why', 'task', name, '--json')) for name in ('last', f'#{index}')]
    expect(last[0]['segments'] == last[1]['segments'] and last[0]['total_ns'] == last[1]['total_ns'], last)
    check_trace(events, index, segments)
    check_counts(broker, n_tasks(broker), len(segments))
    check_svg(broker, events)
    # The limit is reached by the last task.
    few = json.loads(ctl(broker, 'trace', f'--max-events={index + 1}', '--output=-'))['traceEvents']
    said = subprocess.run([CTL, '--socket', broker.socket, 'trace', '--output=-'], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=LIMIT, check=True, text=True).stderr
    whole = {event['args']['index'] for event in events if event.get('cat') == 'execution'
             and 'segment' not in event['args']}
    expect(('shown as a whole' in said) == bool(whole), said, len(whole))
    check_trace(few, index, check_why(broker, index))
    # The segments of an early task are gone: it is explained as a whole.
    early = min(event['args']['index'] for event in events if event['ph'] == 'X')
    if index - early > 1024:
        why = json.loads(ctl(broker, 'why', 'task', f'#{early}', '--json'))
        expect(why['segments'] is None and why['total_ns'] > 0, why)
        expect(any('not logged any more' in fact for fact in why['facts']), why['facts'])
    client.kill()
    client.wait(LIMIT)


def check_branches(broker, model, values):
    """Segments of the two branches run at once, and why follows the critical path."""
    n_beside = 0
    while n_beside == 0:
        client = run_until_stopped(broker, model, values)
        events = json.loads(ctl(broker, 'trace', '--output=-'))['traceEvents']
        ended = sorted({event['args']['index'] for event in events if event.get('cat') == 'execution'})
        for index in ended[-20:]:
            why = json.loads(ctl(broker, 'why', 'task', f'#{index}', '--json'))
            check_times(why)
            slices_of(events, index, why['segments'])
            beside = [segment for segment in why['segments'] if not segment['critical']]
            facts = [fact for fact in why['facts'] if 'its segments' in fact and ' on ' in fact]
            expect(len(facts) == 1 and ('off the critical path' in facts[0]) == bool(beside), facts, beside)
            n_beside += len(beside)
        client.kill()
        client.wait(LIMIT)


def check_micro_batches(segments):
    """Each micro-batch has all segments, and waits only for its own."""
    n_batches, n_segments = segments[0]['batches'], segments[-1]['segment'] + 1
    expect(n_segments > 1 and n_batches > 1 and len(segments) == n_batches * n_segments, segments)
    for i, segment in enumerate(segments):
        expect(segment['batch'] == i // n_segments and segment['segment'] == i % n_segments, segment)
        expect(segment['batches'] == n_batches and segment['exec_ns'] > 0, segment)
    for segment in range(1, n_segments):
        crossed = sum(found['crossed_bytes'] for found in segments if found['segment'] == segment)
        expect(crossed == N_ROWS * 64 * 4, crossed, segments)
    return n_batches


def check_stream(broker, folder):
    """A task that asks for partition streams in micro-batches, with the same result."""
    model, values = make_rows(folder)
    outputs = []
    for device in ('cpu', 'partition'):
        path = os.path.join(folder, device + '.npy')
        report = json.loads(ctl(broker, 'run', '--json', '--profile', '--device=' + device, '--input=x=' + values,
                                '--output=y=' + path, model))
        with open(path, 'rb') as file:
            outputs.append(file.read())
    expect(outputs[0] == outputs[1], 'micro-batches compute something else')
    expect(check_micro_batches(report['segments']) == MOST_BATCHES, report['segments'][0])
    text = ctl(broker, 'run', '--profile', '--device=partition', '--input=x=' + values, model)
    expect('0, batch 1' in text, text)
    client = run_until_stopped(broker, model, values, '--device=partition')
    why = json.loads(ctl(broker, 'why', 'task', 'last', '--json'))
    check_micro_batches(why['segments'])
    check_times(why)
    expect(any(f'the rows streamed in {MOST_BATCHES} micro-batches' in fact for fact in why['facts']), why['facts'])
    events = json.loads(ctl(broker, 'trace', '--output=-'))['traceEvents']
    names = {event['name'] for event in events if event.get('cat') == 'execution'}
    last = f'/{why["segments"][-1]["segment"] + 1} batch {MOST_BATCHES}/{MOST_BATCHES}'
    expect(any(name.endswith(last) for name in names), names)
    client.kill()
    client.wait(LIMIT)


def check_cut(model, values, options, cuts, sentence, least=100):
    """The broker says why it cut the plan or left it whole."""
    with Broker(BROKERD, '--cache=none', *options) as broker:
        client = run_until_stopped(broker, model, values, least=least)
        plan = json.loads(ctl(broker, 'plans', '--json').splitlines()[-1])
        why = json.loads(ctl(broker, 'why', 'plan', plan['plan'], '--json'))
        # Beside other programs the broker may not get to know the CPU. Then it cuts nothing for its time.
        if 'no-gain' in cuts and broker.says('device 0 not measured'):
            cuts, sentence = ['fits'], 'the plan is whole: a device can'
        expect(plan['cut'] in cuts, plan)
        expect((plan['segments'] > 1) == (plan['cut'] in ('faster', 'to-fit', 'at-random')), plan)
        expect((plan['whole_ns'] is not None) == (plan['cut'] in ('faster', 'no-gain')), plan)
        expect(any(sentence in fact for fact in why['facts']), sentence, why['facts'])
        client.kill()
        client.wait(LIMIT)


def check_streamed(broker, plan):
    """Where constants came for a task, the task, its plan and a trace say so."""
    streamed = []

    def is_last_streamed():
        task = json.loads(ctl(broker, 'why', 'task', 'last', '--json').splitlines()[-1])
        streamed[:] = [segment['device'] for segment in task['segments'] if segment['streamed']]
        return streamed

    def is_last_said():
        text = ctl(broker, 'why', 'task', 'last')
        return 'were brought for this task' in text and ', streamed' in text

    wait_for(is_last_streamed, 'no task is said to have got constants')
    expect(set(streamed) == {1}, streamed)
    wait_for(is_last_said, 'the text does not say so')
    text = ctl(broker, 'why', 'plan', plan)
    expect('were brought into device memory just for a task ' in text, text)


def check_weights(folder):
    """Segments without room come for a task if the link is fast, and run on the CPU if it is slow."""
    model, values = make_matrices(folder, 2 * SIDE)
    options = ('--gpu=none', '--cache=none', '--test-device=20us', '--test-device-rate=1000000',
               f'--device-memory={16 * MATRIX_BYTES}')
    for link, comes in (('', True), ('--test-device-link=10', False)):
        with Broker(BROKERD, *options, *([link] if link else [])) as broker:
            client = start([CTL, '--socket', broker.socket, 'run', '--repeat=1000000', '--input=x=' + values, model],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda: n_tasks(broker) > 3, 'no tasks')
            end = time.monotonic() + (LIMIT if comes else 2)
            plan = {'returns': 0, 'segments': 2}
            while time.monotonic() < end and plan['returns'] <= 2 * plan['segments']:
                time.sleep(0.1)
                plan = json.loads(ctl(broker, 'plans', '--json').splitlines()[-1])
                expect(plan['segments'] > 1, plan)
            # The slow link takes three seconds. A CPU that was not measured, or is instrumented, may seem slower.
            if comes or plan['whole_ns'] < 1e9:
                expect((plan['returns'] > 2 * plan['segments']) == comes, link, plan)
                expect((plan['segments_streamed'] > plan['segments']) == comes, link, plan)
            if comes:
                check_streamed(broker, plan['plan'])
            client.kill()
            client.wait(LIMIT)


def check_no_last(broker):
    result = subprocess.run([CTL, '--socket', broker.socket, 'why', 'task', 'last'], stderr=subprocess.PIPE,
                            timeout=LIMIT, check=False, text=True)
    expect(result.returncode == 1 and 'no task is logged' in result.stderr, result)
    for arguments, status, text in ((['last'], 1, "'why task last'"), (['task', 'lats'], 2, 'lats is no task: '),
                                    (['task', '#x'], 2, '#x is no task: ')):
        result = subprocess.run([CTL, '--socket', broker.socket, 'why', *arguments], stderr=subprocess.PIPE,
                                timeout=LIMIT, check=False, text=True)
        expect(result.returncode == status and text in result.stderr, arguments, result)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, values = make_model(folder)
        with Broker(BROKERD, '--gpu=software:2', '--cache=none', '--calibration=none', '--cut=1') as broker:
            check_no_last(broker)
            for options in ((), ('--profile',)):
                report = json.loads(ctl(broker, 'run', '--json', *options, '--input=x=' + values, model))
                expect(('segments' in report) == bool(options), report)
            check_segments(report['segments'])
            report = json.loads(ctl(broker, 'run', '--json', '--profile', '--device=prefer-gpu', '--input=x=' + values,
                                    model))
            ran = {segment['device'] for segment in report['segments']}
            expect(ran <= {1, 2}, 'with prefer-gpu it ran on', ran)
            expect(report['partitioned'] == (len(ran) > 1), report)
            text = ctl(broker, 'run', '--profile', '--input=x=' + values, model)
            expect('The last task, segment by segment' in text and 'node0' in text, text)
            check_logged(broker, model, values)
            check_stream(broker, folder)
        # With this seed, each branch has segments of its own.
        with Broker(BROKERD, '--gpu=software:2', '--cache=none', '--calibration=none', '--cut=5') as broker:
            check_branches(broker, make_branches(folder), values)
        check_cut(model, values, ('--gpu=software:2', '--calibration=none', '--cut=1'), ['at-random'],
                  ' segments at random (brokerd --cut)')
        check_cut(model, values, ('--gpu=software', '--calibration=none'), ['fits'], 'the plan is whole: a device can')
        # Some of the device's memory is kept back for others. A plan is cut for that before its first task, and the
        # software device takes long for each.
        check_cut(*make_matrices(folder), ('--gpu=software', '--calibration=none', f'--device-memory={4 * MATRIX_BYTES}'),
                  ['to-fit'], ', since no device has memory', least=3)
        # One device may be far slower than the other; the second one is.
        for rate, cuts in ((100, ['faster', 'no-gain']), (1000000, ['no-gain'])):
            check_cut(*make_matrices(folder), ('--gpu=none', '--test-device=20us', f'--test-device-rate={rate}'), cuts,
                      's whole)')
        check_weights(folder)
        # A plan that is not cut has none.
        with Broker(BROKERD, '--gpu=none', '--cache=none', '--calibration=none') as broker:
            report = json.loads(ctl(broker, 'run', '--json', '--profile', '--input=x=' + values, model))
            expect(report['segments'] == [], report)
            text = ctl(broker, 'run', '--profile', '--input=x=' + values, model)
            expect('segment' not in text, text)


main()
