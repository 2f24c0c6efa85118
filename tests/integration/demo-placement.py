#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run "tools/demo placement", and stop it in the middle.

    demo-placement.py SOURCE BUILD

The demo itself compares every result with a plain computation, and the placement with the required one.
The test parses the text of its seven scenes. doc/placement.md shows the table of the third. A demo that is stopped in the middle must leave no process
and no file.
"""
import json
import re
import signal
import sys
import tempfile
import time

from demorun import (await_processes, demo, expect_clean, expect_refused, expect_stopped, fail,
                     finish)

SCENES = ('One task described', 'The devices', 'The decision table', 'A mixed batch, balanced',
          'One task split', 'Strategies, and force-CPU', 'The statistics, and their reset')

DEVICES = r'(CPU|GPU|software GPU|both)'
REASONS = r'([a-z]+(?:-[a-z]+)*)'


def split_scenes(output):
    """Return the text of each scene."""
    texts = re.split(r'^(\d)\. (.+)\n', output, flags=re.MULTILINE)
    titles = list(zip(texts[1::3], texts[2::3]))
    if titles != [(str(i + 1), title) for i, title in enumerate(SCENES)]:
        fail(f'scenes: {titles}', output)
    return texts[3::3]


def want(text, pattern, what):
    found = re.search(pattern, text, re.MULTILINE)
    return found if found else fail(f'{what}: not found: {pattern}', text)


def check_task(text, has_gpu):
    want(text, r'^  derived +1\.69 MiB read and written', 'what the task touches')
    want(text, r'^ +113 MFLOP$', 'operations')
    predicted = r'^  predicted +\S+ [mun]?s on the ' + DEVICES
    if len(re.findall(predicted, text, re.MULTILINE)) != 2:
        fail('the task was not predicted twice', text)
    want(text, r'^  decided +' + DEVICES + ': ' + REASONS + ', ', 'the decision')
    n_learned = len(re.findall(r'^  learned +' + DEVICES + r': \S+ [mun]?s \+- \d+%, \d+ tasks', text,
                               re.MULTILINE))
    if n_learned != (2 if has_gpu else 1):
        fail(f'{n_learned} devices were learned', text)


def check_devices(text):
    first = want(text, r'^  first start: +profiles in \d+ ms: (.*)', 'measuring').group(1)
    second = want(text, r'^  second start: +profiles in \d+ ms: (.*)', 'the cache').group(1)
    # A very busy machine may have had no time to measure.
    if 'not measured' not in first and second != first.replace('measured', 'cached'):
        fail(f'measured: {first}; then: {second}', text)
    want(text, r'^  MatMul +GFLOP/s(?: +[0-9.]+){3}', 'rates')


def check_table(source, text):
    """The document's columns, tasks, their bytes, and where the simulated card runs them are those of the demo, which
    takes fewer rows if memory or time is short."""
    with open(source + '/doc/placement.md', encoding='utf-8') as file:
        shown = re.search(r'^( +predicted .*)\n(task .*)\n((?:\d+ [KM]B .*\n)+)', file.read(), re.MULTILINE)
    for head in shown.groups()[:2]:
        want(text, '^ *' + ' +'.join(map(re.escape, head.split())) + '$', 'the columns')
    for row in shown[3].splitlines():
        name, size, where = re.fullmatch(r'(\S+ [KM]B \w+) +(\S+ [KM]iB) .* (\w+)', row).groups()
        decided = rf'.*  {DEVICES} +{REASONS} +\S+ [mun]?s +.* {where}'
        want(text, rf'^  {name} +(?:{size} {decided}|\S+ [KM]iB {decided}\n +\(\d+ of \d+ rows, .*\))$', row)


def check_batch(text, has_gpu):
    n_tasks = int(want(text, r'^  (\d+) tasks of \d+ plans', 'the batch').group(1))
    n_columns = 3 if has_gpu else 2
    rows = [[int(n) for n in row.split()]
            for row in re.findall(r'^  tasks on the [a-zA-Z ]+?((?: +\d+)+) *$', text, re.MULTILINE)]
    if [sum(column) for column in zip(*rows)] != [n_tasks] * n_columns:
        fail(f'{rows} are not {n_tasks} tasks each', text)
    want(text, rf'^All {n_tasks * n_columns} results are right', 'results')


def check_split(text, has_gpu):
    if not has_gpu:
        want(text, 'no Vulkan device', 'the split')
        return
    splits = re.findall(r'^  split +(\d+) rows on the .*; (\d+) on the CPU', text, re.MULTILINE)
    if len(splits) != 6 or any(int(a) + int(b) != 8192 or not int(a) for a, b in splits):
        fail(f'splits: {splits}', text)
    want(text, 'bit by bit', 'the comparison')


def check_strategies(text, has_gpu):
    for name in ('automatic', 'prefer-gpu', 'only-cpu'):
        want(text, rf'^  {name} +{DEVICES} +{REASONS} ', name)
    if has_gpu:
        want(text, r'^  and force-cpu on +CPU +gpu-unavailable', 'force-cpu')
        want(text, r'^  and force-cpu off +(software )?GPU +user-preference', 'force-cpu off')


def check_statistics(text):
    lines = [json.loads(line) for line in re.findall(r'^ +(\{.*\})$', text, re.MULTILINE)]
    if len(lines) != 3 or any(line['type'] != 'decision' for line in lines):
        fail('not three decisions as JSON lines', text)
    counts = want(text, r'tasks counted before: (\d+), after: (\d+)', 'the reset').groups()
    if int(counts[0]) < 90 or counts[1] != '0':
        fail(f'the reset: {counts}', text)


def check_result(source, build, scratch):
    status, output = finish(demo(source, build, scratch, 'placement'))
    if status:
        fail(f'status {status}', output)
    has_gpu = 'There is no Vulkan device' not in output
    texts = split_scenes(output)
    check_task(texts[0], has_gpu)
    check_devices(texts[1])
    check_table(source, texts[2])
    check_batch(texts[3], has_gpu)
    check_split(texts[4], has_gpu)
    check_strategies(texts[5], has_gpu)
    check_statistics(texts[6])
    want(output, 'Every result of every scene was right', 'the end')
    print(output)
    expect_clean(scratch)


def check_stopping(source, build, scratch):
    process = demo(source, build, scratch, 'placement')
    if not await_processes(process, re.escape(scratch) + r'/.*\0task\0$', 1):
        fail('the first scene was never seen', finish(process)[1])
    time.sleep(0.2)
    expect_stopped(process, signal.SIGTERM, scratch)


def main():
    source, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        expect_refused(source, build, scratch, 'placement', '--images', '5')
        expect_refused(source, build, scratch, 'placements')
        check_result(source, build, scratch)
        check_stopping(source, build, scratch)


main()
