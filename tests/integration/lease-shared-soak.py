#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that share a simulated card for long: they are killed, stopped and changed, and the broker is restarted.

    lease-shared-soak.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The programs are those of lease-timeslice.py. $RBK_TEST_KILLS, 1000, and $RBK_TEST_MINUTES, 10, say how long the tests take.
"""
import importlib
import os
import re
import signal
import sys
import time
from random import Random

import started

timeslice = importlib.import_module('lease-timeslice')
POLICY, Program, begun, judge, measure = (timeslice.POLICY, timeslice.Program, timeslice.begun, timeslice.judge,
                                          timeslice.measure)


def broker_state(rig):
    """Return what the broker must not collect: descriptors, threads, memory mappings, and KiB of memory."""
    folder = f'/proc/{rig.broker.process.pid}'
    with open(folder + '/status', encoding='utf-8') as status:
        kib = int(re.search(r'VmRSS:\s+(\d+)', status.read())[1])
    with open(folder + '/maps', encoding='utf-8') as maps:
        n_maps = len(maps.readlines())
    return len(os.listdir(folder + '/fd')), len(os.listdir(folder + '/task')), n_maps, kib


def expect_clean(rig, before, after):
    print('descriptors, threads, mappings, KiB of the broker:', before, 'before,', after, 'after', flush=True)
    started.expect(after[0] <= before[0] + 4 and after[1] <= before[1] and after[2] <= before[2] + 32, 'the broker collects')
    started.expect(after[3] < before[3] + 16384, 'its memory grows')


def expect_soon(begin):
    """Fail 10 s after the moment @begin; else let the programs go on."""
    started.expect(time.monotonic() - begin < 10, 'the other program waits for the dead for ever')
    time.sleep(.0002)


def test_kills():
    """A program is killed amid its parts, $RBK_TEST_KILLS times; the other one has the card at once each time."""
    n_kills, random = int(os.environ.get('RBK_TEST_KILLS', '1000')), Random(1)
    with begun() as rig:
        def victim():
            return Program(rig, 20000, 2, priority=random.choice(('normal', 'urgent')), dispatches=random.choice((1, 100)),
                           max_part='500us', quiet=True)

        other = Program(rig, 1000, 2)
        measure([other], 1)
        before, waits = broker_state(rig), []
        for _ in range(n_kills):
            killed = victim()
            time.sleep(random.uniform(.002, .06))
            other.report()
            killed.process.kill()
            begin = time.monotonic()
            while other.report()[0] == 0:
                expect_soon(begin)
            waits.append((time.monotonic() - begin) * 1000)
            killed.kill()
        waits.sort()
        print(f'{n_kills} kills: the next end of a submission of 1 ms of the other program: p50 {waits[n_kills // 2]:.1f}, '
              f'p99 {waits[n_kills * 99 // 100]:.1f}, {waits[-1]:.1f} ms at most', flush=True)
        judge(waits[n_kills // 2] < 20, 'the other program waits for the dead')
        started.wait_for(lambda: len(rig.leases()) == 1, 'leases of the dead remain')
        expect_clean(rig, before, broker_state(rig))
        (only, ), seconds = measure([other], 1)
        judge(only[0] * 1000 / 1e6 / seconds > .6, 'restrained though alone:', only)
        other.end()


def test_four():
    """Four programs share the card for $RBK_TEST_MINUTES; they are stopped, killed, changed, and the broker is restarted."""
    end, random = time.monotonic() + 60 * float(os.environ.get('RBK_TEST_MINUTES', '10')), Random(int(os.environ.get('RBK_TEST_SEED', '2')))
    with begun(POLICY) as rig:
        def background():
            return Program(rig, 20000, 3, priority='background', dispatches=100, max_part='500us', quiet=True)

        urgent = Program(rig, 1000, 1, 20000, 'urgent', quiet=True)
        heavy = Program(rig, 2000, 4, name='heavy', quiet=True)
        light = Program(rig, 2000, 4, name='light', quiet=True)
        last, before, n_calm, restarts, what = background(), None, 0, 0, 'begin'
        ratios, p99s, worst, served = [], [], 0, 0
        while time.monotonic() < end:
            measure([urgent], .5)
            (u, h, l, b), seconds = measure([urgent, heavy, light, last], 2.5)
            n_calm += 1
            ratios.append(h[0] / max(l[0], 1))
            p99s.append(u[2])
            worst, served = max(worst, u[3]), served + b[0]
            before = before or broker_state(rig)
            print(what, u, h, l, b, flush=True)
            judge(u[0] > 80 and h[0] > 0 and l[0] > 0, 'a program gets nothing:', u, h, l, b)
            what = random.choice(('stop', 'kill', 'change', 'restart'))
            if what == 'stop':
                stopped = random.choice((heavy, light, last))
                stopped.process.send_signal(signal.SIGSTOP)
                measure([urgent], random.uniform(.05, 1))
                stopped.process.send_signal(signal.SIGCONT)
            elif what == 'kill':
                last.kill()
                last = background()
            elif what == 'change':
                number = rig.leases()[last.process.pid]['lease']
                rig.ctl('lease', str(number), f'--share={random.randint(1, 10000)}', '--priority=background')
            else:
                restarts += 1
                rig.broker.process.kill()
                rig.broker.process.wait()
                rig.broker.start()
                before = None
                measure([urgent], 2)
        ratios.sort()
        p99s.sort()
        print(f'{n_calm} calm spans of 2.5 s, {restarts} restarts of the broker: urgent job of 1 ms: p99 {p99s[n_calm // 2]:.0f} us in the '
              f'middle, {p99s[-1]:.0f} at most, longest {worst:.0f}; weights of 3:1: {ratios[n_calm // 2]:.2f} in the middle, '
              f'{ratios[0]:.2f} to {ratios[-1]:.2f}; {served} submissions of the background program', flush=True)
        judge(2.7 < ratios[n_calm // 2] < 3.3, 'not 3:1')
        judge(p99s[n_calm // 2] < 12000, 'the urgent program waits')
        judge(served > 0, 'the background program never got the card')
        if before:
            expect_clean(rig, before, broker_state(rig))
        for program in (urgent, heavy, light, last):
            program.end()


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
