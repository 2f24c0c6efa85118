#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory of idle programs leaves a simulated card by Mesa's driver, and comes back.

    lease-sleep-card.py AMDGPU_SIM BROKERD MOVE_CLIENT MANIFEST BROKERCTL

The card executes nothing, so contents are not compared: lease-sleep.py does that.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import started
from simulated import PATIENCE_S, Broker, Cards

SIM, BROKERD, CLIENT, MANIFEST, BROKERCTL = sys.argv[1:6]
MIB = 1 << 20
# Bytes of a program's own beside its buffers.
ROOM = 16 * MIB


class SleepBroker(Broker):
    foreign_calls = Broker.foreign_calls | {'pwrite64'}


def main():
    with tempfile.TemporaryDirectory(prefix='rbk-sleep-') as folder, Cards(SIM, 'polaris10,vram=4GiB') as cards, \
            SleepBroker(BROKERD, cards) as broker:
        layers = os.path.join(folder, 'share/vulkan/implicit_layer.d')
        os.makedirs(layers)
        shutil.copy(MANIFEST, os.path.join(layers, 'ringbroker_lease.json'))

        def start(vram, **more):
            environment = {**cards.environment, 'XDG_DATA_DIRS': f'{folder}/share:/usr/share', 'RINGBROKER_VULKAN_LEASE': '1',
                           'RINGBROKER_LEASE_VRAM': vram, 'RINGBROKER_SOCKET': broker.socket, 'RINGBROKER_LEASE_LOG': '-',
                           'RINGBROKER_LEASE_SLEEP': '1', **more}
            # The loader and the driver leak.
            environment['ASAN_OPTIONS'] = environment.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
            return started.start([CLIENT, '4', '512', '--blind'], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)

        def line(process):
            return process.stdout.readline().rstrip('\n')

        def ask(process, command):
            process.stdin.write(command + '\n')
            process.stdin.flush()
            return line(process)

        def ctl(*arguments):
            return subprocess.run([BROKERCTL, '--socket', broker.socket, *arguments], stdout=subprocess.PIPE, text=True,
                                  timeout=PATIENCE_S, check=True).stdout

        def lease(process):
            return next(one for one in map(json.loads, ctl('leases', '--json').splitlines()) if one['pid'] == process.pid)

        def vram():
            return next(int(each.split()[1]) for each in map(str.strip, cards.control('show').splitlines())
                        if each.startswith('vram-used'))

        first = start('2304MiB')
        started.expect(line(first) == 'ready', 'the program does not begin')
        whole = 2048 * MIB
        started.expect(vram() >= whole, 'its memory is not on the card', vram())
        # Its memory is wanted by a second program, which has room for none of its own beside it.
        started.wait_for(lambda: lease(first)['movable_bytes'] >= whole, 'no report')
        second = start('2304MiB', RINGBROKER_LEASE_MIN='2304MiB', RINGBROKER_LEASE_WAIT='60s')
        started.expect(line(second) == 'ready', 'the second program does not begin')
        started.expect(lease(first)['moved_bytes'] >= whole and lease(first)['granted_bytes'] < ROOM, lease(first))
        started.expect(whole <= vram() < whole + 8 * ROOM, 'both are on the card, or none', vram())
        # The first one goes on where it is, and comes back when the second one has ended.
        started.expect(ask(first, 'check') == 'same' and lease(first)['moved_bytes'] > 0, lease(first))
        second.stdin.close()
        started.expect(second.wait(PATIENCE_S) == 0, 'the second program failed')

        def is_back():
            started.expect(ask(first, 'turn') == 'turned', 'the first program fails')
            return lease(first)['moved_bytes'] == 0

        started.wait_for(is_back, 'its memory stays away')
        started.expect(vram() >= whole, 'its memory is not back on the card', vram())
        ctl('lease', 'sleep', str(lease(first)['lease']))
        started.wait_for(lambda: vram() < 8 * ROOM, lambda: f'{vram()} bytes stay on the card')
        first.stdin.close()
        started.expect(first.wait(PATIENCE_S) == 0, 'the first program failed')


main()
