#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random command buffers compute the same when they are divided into parts.

    lease-parts.py BROKERD TORTURE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL [FIRST_SEED CASES]

torture-client prints a hash of what each of its cases computed. The cases run without the layer, with it
but whole, and then divided: at nearly every dispatch, with slices of single workgroups; in longer parts; and
beside another program that shares the device, so that others come between parts. Half of the cases
use no optional features, since some of these keep a command buffer whole. The statistics of a lease have what
the layer says at the end of its programs.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

from leaserig import CLIENT, LIMIT_S, SLOW, Broker, Layers, await_true, divided, expect

BROKERCTL = os.path.abspath(sys.argv[5])
SEED, CASES = map(int, sys.argv[6:8] or (1, 120))
# The loader and the driver leak.
SANITIZED = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}
MODES = {
    'whole': {'RINGBROKER_LEASE_PRIORITY': 'normal'},
    'parts of 1 us': {'RINGBROKER_LEASE_MAX_PART': '1us'},
    'parts of 50 us': {'RINGBROKER_LEASE_MAX_PART': '50us'},
}


def environment(layers, broker, **more):
    whole = {name: value for name, value in os.environ.items() if not name.startswith('RINGBROKER_')}
    whole.update({**layers.environment(), **SANITIZED, **more})
    if broker:
        whole.update({'RINGBROKER_SOCKET': broker.socket, 'RINGBROKER_VULKAN_LEASE': '1',
                      'RINGBROKER_LEASE_VRAM': '128MiB', 'RINGBROKER_LEASE_LOG': '-'})
    return whole


def start(layers, broker, seed, options, **more):
    return subprocess.Popen([CLIENT, str(seed), str((CASES + 1) // 2), *options], env=environment(layers, broker, **more),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    out, errors = process.communicate(timeout=10 * LIMIT_S)
    expect(process.returncode == 0, 'torture-client ended with', process.returncode, errors[-2000:])
    return out.splitlines(), errors


def compare(what, lines, expected):
    expect(len(lines) == len(expected), what, len(lines), 'lines of', len(expected))
    wrong = [line.split()[0] for line, right in zip(lines, expected) if line != right]
    expect(not wrong, what, len(wrong), 'cases differ:', *wrong[:20])


def check(layers, broker, seed, options):
    def begin(**settings):
        return start(layers, broker, seed, options, **settings)

    plain, _ = result(start(layers, None, seed, options))
    for mode, settings in MODES.items():
        lines, errors = result(begin(**settings))
        compare(mode, lines, plain)
        n_parts, n_slices = divided(errors)
        n_rewritten = errors.count('was rewritten for slices')
        print(f'{len(plain)} cases, {mode}: divided {n_parts} times, {n_slices} slices, {n_rewritten} shaders rewritten',
              flush=True)
        expect(('parts' in mode) == (n_parts > 0), mode, 'divided', n_parts, 'times', errors[-2000:])
        # Dispatches are sliced once their times are sure, which few cases do not reach.
        expect(mode != 'parts of 1 us' or len(plain) < 20 or n_slices > 0 and n_rewritten > 0, mode, 'no slices')
    both = [begin(RINGBROKER_LEASE_PRIORITY=priority) for priority in ('normal', 'background')]
    n_parts = []
    for process in both:
        lines, errors = result(process)
        compare('beside each other', lines, plain)
        n_parts.append(divided(errors)[0])
    print('beside each other: divided', *n_parts, 'times', flush=True)
    # A short run may have ended before the other one begins.
    expect(sum(n_parts) > 0 or CASES < 200, 'beside each other nothing was divided')


def logged(errors):
    """Return the sums of what the layer has logged, by the names that statistics have for them."""
    found = re.findall(r'divided (\d+) times, dispatches into (\d+) slices; (\d+) long .* (\d+) command buffers', errors)
    return dict(zip(('parts', 'slices', 'unsliced', 'whole'), (sum(map(int, numbers)) for numbers in zip(*found))))


def leases(environ):
    out = subprocess.run([BROKERCTL, 'leases', '--json'], env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def check_reports(layers, broker):
    """A program that is alone reports once a second, and to a new broker what it has done since."""
    environ = {**environment(layers, broker, RINGBROKER_LEASE_PRIORITY='normal', RINGBROKER_LEASE_MAX_PART='50us'),
               'RINGBROKER_LEASE_LOG': os.devnull}
    process = subprocess.Popen([CLIENT, str(SEED), '100000000'], env=environ, stdout=subprocess.DEVNULL)
    seen, begin = [], time.monotonic()

    def reported(n):
        expect(process.poll() is None, 'the program has ended:', process.returncode)
        for lease in leases(environ):
            if lease['submissions'] and lease['submissions'] not in seen:
                expect(lease['sharing'] and not lease['queued'] and (not seen or seen[-1] < lease['submissions']), lease, seen)
                seen.append(lease['submissions'])
        return len(seen) >= n

    try:
        await_true('reports', lambda: reported(4))
        seconds, before = time.monotonic() - begin, list(seen)
        print(f'reports: {len(seen)} in {seconds:.1f} s', flush=True)
        expect(seconds > 1.8 and len(seen) <= seconds + 2, 'too many reports', seen, seconds)
        broker.end(signal.SIGKILL)
        seen.clear()
        begin = time.monotonic()
        broker.start()
        await_true('a report to the next broker', lambda: reported(1))
        later = time.monotonic() - begin
        await_true('reports to the next broker', lambda: reported(2))
        print('submissions:', *before, 'and at the next broker', *seen, flush=True)
        # Work of which the former broker was told does not count again.
        expect(seen[0] < before[-1] or later > seconds, 'the next broker has', seen, before)
    finally:
        process.kill()
        process.wait()


def check_summary(layers, broker):
    """brokerctl exec says at the end how long its program had and waited for the device beside another one."""
    environ = {**environment(layers, broker, RINGBROKER_LEASE_PRIORITY='normal'), 'RINGBROKER_LEASE_LOG': os.devnull}
    other = subprocess.Popen([CLIENT, str(SEED), '100000000'], env=environ, stdout=subprocess.DEVNULL)
    try:
        await_true('the other program', lambda: any(lease['sharing'] for lease in leases(environ)))
        with tempfile.NamedTemporaryFile('r') as report:
            done = subprocess.run([BROKERCTL, 'exec', '--vram=128MiB', '--priority=normal', f'--report={report.name}', '--',
                                   CLIENT, str(SEED), '30'], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, timeout=10 * LIMIT_S, check=True)
            used = json.load(report)
    finally:
        other.kill()
        other.wait()
    said = re.search(r'had it for \S+ \S+, and waited for it for \S+ \S+', done.stderr)
    expect(said and used['slice_ns'] > 0 and used['slice_wait_ns'] > 0, done.stderr, used)
    print(said[0], used['slice_ns'], used['slice_wait_ns'], flush=True)


def check_figures(layers, broker):
    """The figures of a lease agree with the logs of two programs that have left it, one after the other."""
    script = 'for n in 1 2; do "$@" > "$FILE" || exit; done; echo ended; exec cat'
    with tempfile.TemporaryFile('w+') as errors, tempfile.NamedTemporaryFile() as file:
        environ = {**environment(layers, broker), 'FILE': file.name}
        process = subprocess.Popen([BROKERCTL, 'exec', '--vram=128MiB', '--priority=normal', '--max-part=20us', '--', 'sh',
                                    '-c', script, 'sh', CLIENT, str(SEED), '10'],
                                   env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

        def text():
            errors.seek(0)
            return errors.read()

        def agrees():
            lease.update(leases(environ)[0])
            return {name: lease[name] for name in wanted} == wanted

        expect(process.stdout.readline() == 'ended\n', 'the programs failed', text()[-2000:])
        wanted, lease = logged(text()), {}
        expect(text().count('were divided') == 2 and wanted['parts'] > 0, 'no logs', wanted)
        await_true(f'figures {wanted}', agrees)
        print('figures:', {name: lease[name] for name in (*wanted, 'submissions', 'longest_part_ns')}, flush=True)
        expect(lease['submissions'] > 0, 'submissions', lease)
        expect(lease['longest_part_ns'] and lease['longest_part_ns'] < LIMIT_S * 1e9, 'longest', lease)
        process.communicate(timeout=LIMIT_S)
        expect(process.returncode == 0, 'brokerctl exec ended with', process.returncode, text()[-2000:])


def check_movable(layers, broker):
    """Buffers whose memory can be moved, which the layer makes sparse, compute the same, whole and in parts."""
    card = {**layers.add_card(), 'RBK_FAKE_CARD_SPARSE': '1', 'RBK_TORTURE_QUEUES': '1'}
    plain, _ = result(start(layers, None, SEED, [], **card))
    for more in {}, {'RINGBROKER_LEASE_MAX_PART': '20us'}:
        lines, errors = result(start(layers, broker, SEED, [], RINGBROKER_LEASE_SLEEP='1', **card, **more))
        compare(f'sparse buffers, {more}', lines, plain)
        expect('stays where it is' not in errors and bool(more) == (divided(errors)[0] > 0), errors[-2000:])
    print(f'{len(plain)} cases, sparse buffers', flush=True)


def main():
    with Layers() as layers, Broker(memory='512MiB') as broker:
        if SLOW == 1:
            check_movable(layers, broker)
        check_figures(layers, broker)
        check_reports(layers, broker)
        check_summary(layers, broker)
        check(layers, broker, SEED, [])
        check(layers, broker, SEED + CASES, ['--core'])


main()
