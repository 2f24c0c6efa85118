#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run tools/demo over a few images, and stop it in the middle.

    demo.py SOURCE BUILD DATA N_IMAGES RIGHT RIGHT_NEAREST RIGHT_DIGITS

The demo compares every neighbour that a device found with exact integer arithmetic. All neighbours must
be equal, on the CPU and on Vulkan, with RIGHT images classified correctly (RIGHT_NEAREST by the nearest
neighbour alone). Its two tenants must stay within their budgets, with the exact neighbours. The program
that knows nothing of the broker must be charged beside its tenant's client, within its lease. Clients
whose broker is killed must have the same results. The
network of DATA, if present, must read RIGHT_DIGITS of as many pictures on each device. A demo that is
stopped in any part must leave no process and no file. Exit status 77 if the images are missing.
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


# Rows of tenant batch in three columns, with N tasks: its budget is smaller than its index, larger, and smaller
# again.
BATCH = (('  vram-max', '24 MiB', '64 MiB', '24 MiB'),
         ('  its plan', 'never-fits', 'resident', 'never-fits'),
         ('  tasks, user-preference', '0', 'N on Vulkan', '0'),
         ('  tasks, memory-constraint', 'N on CPU', '0', 'N on CPU'),
         ('  evictions, returns', '0, 0', '0, 0', '1, 0'))
SEARCH = (('  vram-reserve', '48 MiB', '48 MiB', '48 MiB'),
          ('  its plan', 'resident', 'resident', 'resident'),
          ('  tasks, user-preference', 'N on Vulkan', 'N on Vulkan', 'N on Vulkan'),
          ('  evictions, returns', '0, 0', '0, 0', '0, 0'))


STAND_IN = 'no card'  # in place of a time, where the device is software


def used(text):
    """Return the numbers of a row of sizes."""
    return [int(cell.split()[0]) for cell in cells(text, '  VRAM used at most')]


def check_tenants(output, n_images):
    search, batch = output.split('\nsearch\n')[1].split('\nbatch\n')
    n_tasks = (n_images + 15) // 16
    for text, rows in ((search, SEARCH), (batch, BATCH)):
        for row, *expected in rows:
            if cells(text, row) != [e.replace('N', str(n_tasks)) for e in expected]:
                fail(f'{row}: expected {expected}', output)
    # An index takes 37 MiB; no tenant ever holds more than its budget.
    if min(used(search)) < 37 or max(used(search)) > 64:
        fail('tenant search has not had what it needs, or more', output)
    if used(batch)[::2] != [0, 0] or not 37 <= used(batch)[1] <= 64:
        fail('tenant batch has not had what its budget says', output)
    if f'all {6 * n_images * 5} neighbours are those of exact' not in output.replace('\n', ' '):
        fail("the tenants' neighbours differ", output)


def command(output, line):
    """Return the output of a command that the demo shows."""
    return output.split(f'\n$ {line}')[1].split('\n$ ')[0]


def check_leases(output, n_images):
    if 'This build has no Vulkan layer' in output:
        return
    holding = command(output, 'brokerctl exec --tenant studio --vram 16MiB -- plain-vulkan --hold')
    if 'the sums of pixels of 12000 images are right; 10.0 MiB allocated' not in holding:
        fail('the program was not right in its lease', output)
    # The ledger has the program's lease of 16 MiB beside an index of 37 MiB and the tasks' working memory.
    rows = [line.split() for line in command(output, 'brokerctl leases').splitlines()
            if 'plain-vulkan' in line]
    if [row[1:3] for row in rows] != [['studio', 'plain-vulkan']] or rows[0].count('16') != 2:
        fail('brokerctl does not list the lease', output)
    picture = command(output, 'brokertop --once')
    used = re.search(r'^ studio .*?(\d+) MiB +64 MiB', picture, re.MULTILINE)
    if not used or not 53 <= int(used.group(1)) <= 64 or '====' not in picture:
        fail('brokertop does not show both of them', output)
    more = command(output, 'brokerctl exec --tenant studio --vram 4MiB -- plain-vulkan')
    if 'vkAllocateMemory of 44.9 MiB: VK_ERROR_OUT_OF_DEVICE_MEMORY' not in more or \
            '1 allocation refused\n(status 1)' not in more:
        fail('the program is not refused by an error of its driver', output)
    budget, end = command(output, 'brokerctl exec --tenant studio --vram 64MiB').split('(status 125)')
    said = 'tenant studio: a lease of device 1 requires 64 MiB, of which 48 MiB are'
    if said not in budget:
        fail('a lease above the budget is not refused', output)
    if not re.search(r'computed \d+ times in all, right each time\n'
                     r'.*at most 10 MiB in use .* of 16 MiB\n', end):
        fail('the program did not go on to its end', output)
    if 'plain-vulkan' in output.rsplit('$ brokerctl leases', 1)[1] or \
            f'all {3 * n_images * 5} neighbours are the exact ones' not in output or \
            'the tenant had 0 bytes of the device' not in output:
        fail('the end is not as expected', output)


def check_model(output, n_columns, right):
    if 'No model is shown' in output:
        return
    model = output.split('\nA convolutional network from an ONNX file')[1]
    if cells(model, 'digits right') != [right] * n_columns:
        fail(f'digits right: expected {right} in {n_columns} columns', output)
    if any(rate != STAND_IN and float(rate) <= 0 for rate in cells(model, 'pictures per second')[:-1]):
        fail('the model has no rate', output)


def check_gains(output):
    """The demo leads with the gain of a GPU's owner, and prints no time of a software device."""
    if 'brokerd owns the GPU of a machine' not in output.split('\nbrokerd: ')[0]:
        fail('the demo does not begin with its subject', output)
    gains = output.split('\nThe gain for the owner of a GPU:\n')[1]
    if not re.search(r'^  overhead   \d+\.\d us for a small task', gains, re.MULTILINE) or \
            not re.search(r'^  copies     0 bytes: both devices ', gains, re.MULTILINE):
        fail('the gains are not as expected', output)
    is_stand_in = 'stands in for\na card' in output
    times = [cells(output, row)[1] for row in ('images per second', 'round trip, p50', 'of it on the device, p50')]
    if is_stand_in != (times == [STAND_IN] * 3) or is_stand_in == ('\n  speed ' in gains):
        fail(f'times of Vulkan: {times}', output)


def check_result(source, build, data, scratch, n_images, right, right_nearest, right_digits):
    status, output = finish(demo(source, build, scratch, '--images', n_images, '--data', data))
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
        check_gains(output)
        check_tenants(output, int(n_images))
        check_leases(output, int(n_images))
    check_model(output, n_columns, right_digits)
    print(output)
    expect_clean(scratch)


def check_survival(source, build, scratch, n_images, right):
    status, output = finish(demo(source, build, scratch, 'survive', '--images', n_images))
    if status:
        fail(f'survive: status {status}', output)
    n_deaths = re.search(r'^brokerd was killed (\d+) times', output, re.MULTILINE)
    n_gaps = [int(n) for n in re.findall(r'^\w+: (\d+) gaps of ', output, re.MULTILINE)]
    if not n_deaths or int(n_deaths.group(1)) < 2 or max(n_gaps) < 2:
        fail('the clients have not noticed that their broker was killed', output)
    if set(cells(output, 'right')) != {right}:
        fail(f'right: expected {right} in all columns', output)
    expect_clean(scratch)


def check_stopping(source, build, scratch):
    # The clients run when they connect or compute; stop the demo at that point.
    folder = re.escape(scratch)
    process = demo(source, build, scratch, '--images', '10000')
    if not await_processes(process, folder, 2):
        fail('the demo starts no client', finish(process)[1])
    time.sleep(0.3)
    expect_stopped(process, signal.SIGTERM, scratch)
    stop_when_seen(source, build, scratch, folder + '/[^/]+/batch\0--classify')
    stop_when_seen(source, build, scratch, folder + '/[^/]+/brokerd.sock\0exec\0.*\0--hold',
                   'leases')


def stop_when_seen(source, build, scratch, pattern, *part):
    """Stop the demo when a process matches @pattern. The process lives for a second or two, so on a
    busy machine it may not be seen."""
    for _ in range(5):
        process = demo(source, build, scratch, *part, '--images', '16')
        if await_processes(process, pattern, 1):
            expect_stopped(process, signal.SIGINT, scratch)
            return
        output = finish(process)[1]
        if 'No Vulkan device was found' in output or 'has no Vulkan layer' in output:
            return
    fail(f'never seen: {pattern}')


def check_refusals(source, build, scratch):
    for options in (('--unknown',), ('--images', '0'), ('--images', '10001'), ('--images', 'x'),
                    ('--images',)):
        expect_refused(source, build, scratch, *options)


def main():
    source, build, data, *expected = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        check_refusals(source, build, scratch)
        check_result(source, build, data, scratch, *expected)
        check_survival(source, build, scratch, *expected[:2])
        check_stopping(source, build, scratch)


main()
