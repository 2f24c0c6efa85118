#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tools/demo over a few images, and stops it in the middle.

    demo.py SOURCE BUILD N_IMAGES RIGHT RIGHT_NEAREST

The demo compares every neighbour that a device found with those of exact integer arithmetic; it
must find all of them, on the CPU and on Vulkan, and RIGHT of the images right (RIGHT_NEAREST by the
nearest neighbour alone). Its two tenants must have had what their budgets say, and the exact
neighbours too. Stopped in the middle of either part, it leaves no process and no file. Exit status
77 where the images are missing.
"""
import re
import signal
import sys
import tempfile
import time

from demorun import (await_processes, demo, expect_clean, expect_refused, expect_stopped, fail,
                     finish)


def cells(output, row):
    for line in output.split('\n'):
        if line.startswith(row + '  '):
            return [cell.split('(')[0].strip() for cell in line[28:].split('  ') if cell.strip()]
    return fail(f'the table has no row "{row}"', output)


# What tenant batch does in three columns, with so many tasks: its budget is less than its index,
# more, and less again.
BATCH = (('  vram-max', '24 MiB', '64 MiB', '24 MiB'),
         ('  its plan', 'never-fits', 'resident', 'never-fits'),
         ('  tasks, user-preference', '0', 'N on Vulkan', '0'),
         ('  tasks, memory-constraint', 'N on CPU', '0', 'N on CPU'),
         ('  evictions, returns', '0, 0', '0, 0', '1, 0'))
SEARCH = (('  vram-reserve', '48 MiB', '48 MiB', '48 MiB'),
          ('  its plan', 'resident', 'resident', 'resident'),
          ('  tasks, user-preference', 'N on Vulkan', 'N on Vulkan', 'N on Vulkan'),
          ('  evictions, returns', '0, 0', '0, 0', '0, 0'))


def used(text):
    """The numbers of a row of sizes."""
    return [int(cell.split()[0]) for cell in cells(text, '  VRAM used at most')]


def check_tenants(output, n_images):
    search, batch = output.split('\nsearch\n')[1].split('\nbatch\n')
    n_tasks = (n_images + 15) // 16
    for text, rows in ((search, SEARCH), (batch, BATCH)):
        for row, *expected in rows:
            if cells(text, row) != [e.replace('N', str(n_tasks)) for e in expected]:
                fail(f'{row}: expected {expected}', output)
    # An index takes 37 MiB; nobody ever has more than its budget.
    if min(used(search)) < 37 or max(used(search)) > 64:
        fail('tenant search has not had what it needs, or more', output)
    if used(batch)[::2] != [0, 0] or not 37 <= used(batch)[1] <= 64:
        fail('tenant batch has not had what its budget says', output)
    if f'all {6 * n_images * 5} neighbours are those of exact' not in output.replace('\n', ' '):
        fail("the tenants' neighbours differ", output)


def check_result(source, build, scratch, n_images, right, right_nearest):
    status, output = finish(demo(source, build, scratch, '--images', n_images))
    if status == 77:
        print(output.strip())
        sys.exit(77)
    if status:
        fail(f'status {status}', output)
    n_columns = 2 if 'No Vulkan device was found' in output else 3
    for row, expected in (('right', right), ('right by the nearest alone', right_nearest)):
        if cells(output, row) != [expected] * n_columns:
            fail(f'{row}: expected {expected} in {n_columns} columns', output)
    if f'all {int(n_images) * 5} neighbours are the same' not in output:
        fail('the neighbours differ', output)
    if n_columns == 3:
        check_tenants(output, int(n_images))
    print(output)
    expect_clean(scratch)


def check_stopping(source, build, scratch):
    # The clients have been started when they connect or compute; stop while they do.
    folder = re.escape(scratch)
    process = demo(source, build, scratch, '--images', '10000')
    if not await_processes(process, folder, 2):
        fail('the demo starts no client', finish(process)[1])
    time.sleep(0.3)
    expect_stopped(process, signal.SIGTERM, scratch)
    # Tenants' clients are there for a second or two: on a busy machine they may go unseen.
    for _ in range(5):
        process = demo(source, build, scratch, '--images', '16')
        is_there = await_processes(process, folder + '/[^/]+/batch\0--classify', 1)
        if is_there:
            expect_stopped(process, signal.SIGINT, scratch)
            return
        if 'No Vulkan device was found' in finish(process)[1]:
            return
    fail("the demo's second part was never seen")


def check_refusals(source, build, scratch):
    for options in (('--unknown',), ('--images', '0'), ('--images', '10001'), ('--images', 'x'),
                    ('--images',)):
        expect_refused(source, build, scratch, *options)


def main():
    source, build, n_images, right, right_nearest = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        check_refusals(source, build, scratch)
        check_result(source, build, scratch, n_images, right, right_nearest)
        check_stopping(source, build, scratch)


main()
