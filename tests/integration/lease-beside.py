#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that use a card beside the timeslices of leases that share it: the broker names them.

    lease-beside.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]
"""
import importlib
import json
import os
import sys
import time

import started
from started import expect, wait_for

timeslice = importlib.import_module('lease-timeslice')
Program, begun = timeslice.Program, timeslice.begun
POLICY = timeslice.POLICY
# Two windows of ten seconds, and some looks.
LIMIT_S = 26 * timeslice.SLOW


def listed(rig):
    """Return the rows of brokerctl leases, by their type."""
    rows = {'lease': {}, 'outside': {}}
    for row in map(json.loads, rig.ctl('leases', '--json').splitlines()):
        rows[row['type']][row['pid']] = row
    return rows


def test_beside():
    """A second process in a lease has no priority, so it is not held back; and a program has no lease at all."""
    with begun(POLICY) as rig:
        light, heavy = Program(rig, 1000, 2, name='light'), Program(rig, 1000, 2, name='heavy')
        rig.await_lease(heavy, 'the program does not share the card', sharing=True)
        number = listed(rig)['lease'][heavy.process.pid]['lease']
        rig.cards.environment['RINGBROKER_LEASE'] = str(number)
        beside = Program(rig, 1000, 2, name='heavy', priority=None)
        del rig.cards.environment['RINGBROKER_LEASE']
        without = started.start([os.path.join(rig.folder, 'other'), '100', '1', '3000'],
                                env=rig.cards.environment, stdin=-1, stdout=-1, text=True)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and (without.pid not in listed(rig)['outside'] or
                                          listed(rig)['lease'][heavy.process.pid]['beside_ns'] == 0):
            time.sleep(.2)
        rows = listed(rig)
        print(rows['outside'], rows['lease'][heavy.process.pid]['beside_ns'] / 1e9, flush=True)
        expect(list(rows['outside']) == [without.pid], rows['outside'])
        row = rows['outside'][without.pid]
        expect(row['name'] == 'other' and row['device'] == 1 and 5 <= row['busy_percent'] <= 60, row)
        expect(rows['lease'][heavy.process.pid]['beside_ns'] > 2e9, rows['lease'])
        expect(rows['lease'][light.process.pid]['beside_ns'] == 0, rows['lease'])
        said = rig.broker.log()
        for line in said.splitlines():
            if 'beside the lease' in line or 'has no lease, and used' in line:
                print('   ', line, flush=True)
        expect(said.count('beside the lease') == 1 and said.count('has no lease, and used') == 1, said)
        expect(f'lease {number} of "heavy", tenant heavy' in said and f'process {beside.process.pid} (heavy)' in said, said)
        expect(f'process {without.pid} (other)' in said, said)
        table = rig.ctl('leases')
        expect('Programs without a lease' in table and str(without.pid) in table, table)
        without.stdin.close()
        without.wait(60)
        for program in beside, heavy:
            program.end()
        # No lease shares the card any more with one that has ended.
        light.end()
        wait_for(lambda: not listed(rig)['outside'], 'it is still listed')


def test_nothing_beside():
    """Programs that keep to their timeslices are not named."""
    with begun(POLICY) as rig:
        programs = [Program(rig, 2000, 4, name='light'), Program(rig, 500, 2, name='heavy', period_us=0),
                    Program(rig, 1000, 1, name='light', period_us=7000, priority='urgent'),
                    Program(rig, 70000, 2, name='heavy', priority='background')]
        time.sleep(13)
        rows = listed(rig)
        expect(not rows['outside'], rows['outside'])
        for row in rows['lease'].values():
            print(row['name'], row['busy_ns'] / 1e9, row['slice_ns'] / 1e9, row['overdue'], flush=True)
        expect(not any(row['beside_ns'] for row in rows['lease'].values()), rows['lease'])
        expect('beside the lease' not in rig.broker.log(), rig.broker.log())
        for program in programs:
            program.end()


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
