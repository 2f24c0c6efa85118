#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs in leases whose card is reset: each one's user learns who is the reason, as far as they may.

    lease-resets.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The simulated card resets itself when a submission takes too long. As with Linux 6.1, all programs
lose their work then.
"""
import importlib
import json
import os
import subprocess
import sys
import time

import started
from started import LIMIT, expect, wait_for

timeslice = importlib.import_module('lease-timeslice')
Program, begun = timeslice.Program, timeslice.begun

CTL = os.path.abspath(sys.argv[6])
# brokerctl is a client of tenant light, if its user is no administrator.
POLICY = f'[tenant heavy]\nmatch-exe = {{0}}/heavy\n[tenant light]\nmatch-exe = {{0}}/light, {CTL}\n'
OTHER_USER = {'user': 65534, 'group': 65534, 'extra_groups': []}
TIMEOUT_S = 1.3
LONG_US = 2000000


class Victim(Program):
    """A program that may lose the card, and whose standard error is kept."""

    def __init__(self, rig, us, **options):
        self.errors_path = os.path.join(rig.folder, f'errors-{id(self)}')
        with open(self.errors_path, 'w', encoding='utf-8') as errors:
            before = os.dup(2)
            os.dup2(errors.fileno(), 2)
            try:
                super().__init__(rig, us, quiet=True, **options)
            finally:
                os.dup2(before, 2)
                os.close(before)

    def says(self):
        with open(self.errors_path, encoding='utf-8') as errors:
            return errors.read()

    def await_loss(self):
        """Return what the layer says of the lost device. The program ends then."""
        expect('failed' in self.line(), 'a program did not lose the card')
        self.process.stdin.close()
        self.process.wait(LIMIT)
        lines = [line for line in self.says().splitlines() if ' was lost' in line]
        expect(len(lines) == 1, lines)
        print('   ', lines[0], flush=True)
        return lines[0]


def ctl(rig, *arguments, **options):
    return subprocess.run([CTL, '--socket', rig.broker.socket, *arguments], timeout=LIMIT, check=True,
                          stdout=subprocess.PIPE, text=True, **options).stdout


def leases(rig):
    """Return the numbers of the leases by the process that opened them."""
    return {lease['pid']: lease['lease'] for lease in map(json.loads, ctl(rig, 'leases', '--json').splitlines())}


def lines(rig, what='the work of'):
    """Return the broker's lines about lost leases."""
    return [line for line in rig.broker.log().splitlines() if f' was reset under {what}' in line]


def await_lines(rig, n):
    wait_for(lambda: len(lines(rig)) >= n, f'the broker does not log {n} lines:', lambda: '\n'.join(lines(rig)))
    for line in lines(rig):
        print('   ', line, flush=True)
    expect(len(lines(rig)) == n, lines(rig))
    return lines(rig)


def why(rig, number, **options):
    facts = json.loads(ctl(rig, 'why', 'lease', str(number), '--json', **options))['facts']
    facts = [fact for fact in facts if 'was reset' in fact]
    for fact in facts:
        print('    why:', fact, flush=True)
    return facts


def counts(rig):
    """Return the programs that were the reason of resets, and those that were not, by tenant."""
    tenants = [json.loads(line) for line in ctl(rig, 'tenants', '--json').splitlines()]
    return {tenant['tenant']: (tenant['lease_resets_own'], tenant['lease_resets_innocent'])
            for tenant in tenants if tenant['tenant'] in ('heavy', 'light')}


def resets(rig):
    rig.cards.control('set', f'timeout-ns={int(TIMEOUT_S * 1e9)}')


def test_guilty_and_innocent():
    """Another tenant's program is the reason: its user and the administrator learn that, others only that it was another tenant's."""
    with begun(POLICY) as rig:
        resets(rig)
        light, other = Victim(rig, 1000, depth=1, name='light'), Victim(rig, 1000, depth=1, name='light')
        rig.await_lease(light, 'the program does not share the card', sharing=True)
        heavy = Victim(rig, LONG_US, depth=1, name='heavy')
        numbers = wait_for(lambda: len(found := leases(rig)) == 3 and found, 'three leases')
        said = heavy.await_loss()
        expect('its own work is the reason' in said and '--max-part' in said, said)
        for program in light, other:
            said = program.await_loss()
            expect('a program of another tenant, which brokerd\'s log names, is the reason' in said, said)
            expect('heavy' not in said, said)
        said = await_lines(rig, 3)
        culprit = f'heavy (pid {heavy.process.pid}) of lease {numbers[heavy.process.pid]}'
        expect(sum(f'under the work of {culprit}, tenant heavy: its own work is the reason' in line for line in said) == 1, said)
        expect(sum(f'{culprit}, tenant heavy is the reason' in line for line in said) == 2, said)
        # The leases have ended with their programs.
        facts = why(rig, numbers[light.process.pid])
        expect(len(facts) == 1 and culprit in facts[0] and 'tenant heavy' in facts[0], facts)
        facts = why(rig, numbers[heavy.process.pid])
        expect(len(facts) == 1 and 'its own work' in facts[0], facts)
        if os.geteuid() == 0:
            os.chmod(rig.broker.socket, 0o666)
            facts = why(rig, numbers[light.process.pid], **OTHER_USER)
            expect(len(facts) == 1 and 'another tenant' in facts[0] and 'heavy' not in facts[0], facts)
        wait_for(lambda: counts(rig) == {'heavy': (1, 0), 'light': (0, 2)}, 'other counts:', lambda: counts(rig))


def test_same_tenant():
    """A program of the own tenant is named to its neighbours."""
    with begun('[tenant heavy]\nmatch-exe = {0}/heavy, {0}/light\n') as rig:
        resets(rig)
        light = Victim(rig, 1000, depth=1, name='light')
        rig.await_lease(light, 'the program does not share the card', sharing=True)
        heavy = Victim(rig, LONG_US, depth=1, name='heavy')
        numbers = wait_for(lambda: len(found := leases(rig)) == 2 and found, 'two leases')
        heavy.await_loss()
        said = light.await_loss()
        culprit = f'heavy (pid {heavy.process.pid}) of lease {numbers[heavy.process.pid]}'
        expect(f'{culprit} is the reason' in said, said)
        await_lines(rig, 2)
        facts = why(rig, numbers[light.process.pid])
        expect(len(facts) == 1 and culprit in facts[0], facts)


def test_culprit_is_killed():
    """The culprit says nothing any more: the broker has seen who had the card for long."""
    with begun(POLICY) as rig:
        resets(rig)
        light = Victim(rig, 1000, depth=1, name='light')
        rig.await_lease(light, 'the program does not share the card', sharing=True)
        heavy = Victim(rig, LONG_US, depth=1, name='heavy')
        numbers = wait_for(lambda: len(found := leases(rig)) == 2 and found, 'two leases')
        # Shortly before the reset, to which its work still leads.
        time.sleep(TIMEOUT_S - .15)
        heavy.kill()
        said = light.await_loss()
        expect('a program of another tenant' in said and 'had the device for 1.' in said, said)
        said = await_lines(rig, 2)
        expect(all('may have taken longer' in line or 'its own work may be the reason' in line for line in said), said)
        expect(sum('heavy' in line and 'tenant light' in line for line in said) == 1, said)
        facts = why(rig, numbers[light.process.pid])
        expect(len(facts) == 1 and 'tenant heavy' in facts[0], facts)


def test_alone():
    """A program that hangs the card alone learns of --max-part; with that nothing hangs."""
    with begun(POLICY) as rig:
        resets(rig)
        heavy = Victim(rig, LONG_US, depth=1, name='heavy')
        said = heavy.await_loss()
        expect('its own work is the reason' in said, said)
        await_lines(rig, 1)


def test_plans():
    """The broker's own tasks lose the card for a program's work, and run again."""
    with begun(POLICY) as rig:
        with timeslice.Client(timeslice.MODEL_CLIENT, rig.broker) as client:
            client.tell('plan', 'model', 16)
            client.await_state('model', 'vram')
            client.tell('start', 'model')
            resets(rig)
            heavy = Victim(rig, LONG_US, depth=1, name='heavy', priority=None)
            said = heavy.await_loss()
            expect('its own work is the reason' in said, said)
            n, _ = client.stop('model')
            expect(n > 0, 'no tasks')
            await_lines(rig, 1)
            said = wait_for(lambda: lines(rig, "the broker's plans"), 'plans')
            expect(len(said) == 1 and f'heavy (pid {heavy.process.pid})' in said[0], said)


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
