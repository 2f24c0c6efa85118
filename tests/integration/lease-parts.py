#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random command buffers compute the same when they are divided into parts.

    lease-parts.py BROKERD TORTURE_CLIENT MANIFEST FAKE_CARD_LAYER [FIRST_SEED CASES]

torture-client prints a hash of what each of its cases computed. The cases run without the layer, with it
but whole, and then divided: at nearly every dispatch, with slices of single workgroups; in longer parts; and
beside another program that shares the device, so that others come between parts. Half of the cases
use no optional features, since some of these keep a command buffer whole.
"""
import os
import subprocess
import sys

from leaserig import CLIENT, LIMIT_S, Broker, Layers, divided, expect

SEED, CASES = map(int, sys.argv[5:7] or (1, 120))
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
        print(f'{len(plain)} cases, {mode}: divided {n_parts} times, {n_slices} slices', flush=True)
        expect(('parts' in mode) == (n_parts > 0), mode, 'divided', n_parts, 'times', errors[-2000:])
        # Dispatches are sliced once their times are sure, which few cases do not reach.
        expect(mode != 'parts of 1 us' or len(plain) < 20 or n_slices > 0, mode, 'no slices')
    both = [begin(RINGBROKER_LEASE_PRIORITY=priority) for priority in ('normal', 'background')]
    n_parts = []
    for process in both:
        lines, errors = result(process)
        compare('beside each other', lines, plain)
        n_parts.append(divided(errors)[0])
    print('beside each other: divided', *n_parts, 'times', flush=True)
    # A short run may have ended before the other one begins.
    expect(sum(n_parts) > 0 or CASES < 200, 'beside each other nothing was divided')


def main():
    with Layers() as layers, Broker(memory='512MiB') as broker:
        check(layers, broker, SEED, [])
        check(layers, broker, SEED + CASES, ['--core'])


main()
