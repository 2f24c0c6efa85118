#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Device memory of idle programs goes to host memory on demand, and comes back unchanged.

    lease-sleep.py BROKERD MOVE_CLIENT MANIFEST FAKE_CARD_LAYER BROKERCTL [TEST...]

The device is the software one, which fake-card-layer gives sparse binding and a heap of host memory.
move-client compares what its buffers contain with what the device has written there.
"""
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

from leaserig import MIB, Broker, Client, Layers, await_true, expect

BROKERCTL = os.path.abspath(sys.argv[5])
# move-client has a host buffer beside these, which is no device memory.
SIZES = ['8', '8']
BYTES = 64 * MIB


def brokerctl(broker, *arguments, status=0):
    done = subprocess.run([BROKERCTL, f'--socket={broker.socket}', *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    expect(done.returncode == status, arguments, 'ended with', done.returncode, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def leases(broker):
    return {lease['lease']: lease for lease in map(json.loads, brokerctl(broker, 'leases', '--json').splitlines())}


def lease(broker, number):
    return leases(broker)[number]


class Mover(Client):
    def __init__(self, layers, broker, sizes=SIZES, vram='64MiB', **environment):
        super().__init__(layers, broker, wrapper=('sh', '-c', f'exec "$0" {" ".join(sizes)}'),
                         **{**layers.card, 'RINGBROKER_LEASE_SLEEP': '1', 'RBK_FAKE_CARD_SPARSE': '1',
                            'RINGBROKER_LEASE_VRAM': vram, 'RINGBROKER_LEASE_LOG': '-', **environment})
        self.broker = broker

    def begin(self):
        answer = self.hear()
        expect(answer == 'ready', answer, self.stderr())
        pid = self.process.pid
        self.number_of_lease = next(one['lease'] for one in leases(self.broker).values() if one['pid'] == pid)
        return self

    @property
    def now(self):
        return lease(self.broker, self.number_of_lease)

    def expect_same(self):
        answer = self.ask('check')
        expect(answer == 'same', answer, self.stderr())

    def await_moved(self, n_bytes):
        await_true(f'{n_bytes} bytes moved of {self.now}', lambda: self.now['moved_bytes'] == n_bytes)


@contextlib.contextmanager
def running(*arguments, **environment):
    mover = Mover(*arguments, **environment)
    try:
        yield mover.begin()
    finally:
        if mover.process.poll() is None:
            mover.process.kill()
        mover.process.wait()


def test_there_and_back(layers, broker):
    """All memory goes, and comes back for the next work, again and again."""
    with running(layers, broker) as mover:
        await_true('a report', lambda: mover.now['movable_bytes'] == BYTES)
        before = mover.now
        expect(before['granted_bytes'] == BYTES and before['moved_bytes'] == 0 and not before['sleeps'], before)
        said = brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        expect('64 MiB of 64 MiB can go to host memory' in said, said)
        for _ in range(2):
            mover.await_moved(BYTES)
            asleep = mover.now
            why = brokerctl(broker, 'why', 'lease', str(mover.number_of_lease))
            expect('it sleeps: ' in why and 'of their memory is in host memory now' in why, why)
            expect(asleep['granted_bytes'] == 0 and asleep['used_bytes'] == 0 and asleep['sleeps'], asleep)
            # Another size is for later: memory that no program uses stays free.
            said = brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=64MiB')
            expect('has 0 B of 64 MiB: it sleeps' in said, said)
            expect(mover.now['granted_bytes'] == 0, mover.now)
            mover.expect_same()
            await_true('memory to come back', lambda: mover.now['moved_bytes'] == 0)
            expect(mover.now['granted_bytes'] == BYTES, mover.now)
            expect(mover.ask('turn') == 'turned')
            mover.expect_same()
        brokerctl(broker, 'lease', 'sleep', '--hold', str(mover.number_of_lease))
        said = brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        expect('is no longer held, and sleeps' in said, said)
        mover.expect_same()
        said = brokerctl(broker, 'lease', 'wake', str(mover.number_of_lease))
        expect('is awake' in said, said)
        mover.expect_same()
        time.sleep(2.5)
        expect(mover.now['moved_bytes'] == 0 and mover.now['granted_bytes'] == BYTES, mover.now)
        expect('have moved to host memory' in mover.stderr() and 'have moved back' in mover.stderr(), mover.stderr())


def test_busy(layers, broker):
    """Memory stays while a submission has not ended, or something waits for it."""
    with running(layers, broker) as mover:
        mover.say('pause 2500')
        end = time.monotonic() + 2.3
        brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        while time.monotonic() < end:
            expect(mover.now['moved_bytes'] == 0, mover.now)
            time.sleep(0.1)
        expect(mover.hear() == 'paused')
        mover.await_moved(BYTES)
        mover.expect_same()


def test_under_work(layers, broker):
    """Memory does not come back while work is under way that may use it, but afterwards."""
    with running(layers, broker) as mover:
        brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=24MiB')
        mover.await_moved(40 * MIB)
        mover.expect_same()
        mover.say('under 2500')
        brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=64MiB')
        while not has_answered(mover, limit_s=0.1):
            expect(mover.now['moved_bytes'] == 40 * MIB or has_answered(mover), mover.now)
        expect(mover.hear() == 'under')
        await_true('memory to come back', lambda: mover.now['moved_bytes'] == 0)
        mover.expect_same()


def test_crossed(layers, broker):
    """A thread waits for its queue, which waits for a thread that needs memory."""
    with running(layers, broker, sizes=['8', '8', '--queues'], vram='80MiB') as mover:
        expect(mover.ask('map') == 'mapped 0' and mover.ask('unmap') == 'unmapped')
        brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=24MiB')
        await_true('less', lambda: mover.now['granted_bytes'] == 24 * MIB)
        mover.expect_same()
        mover.say('pause 1500')
        expect(has_answered(mover, limit_s=20) and mover.hear() == 'paused', 'a deadlock')
        mover.expect_same()


def test_child(layers, broker):
    """A child that inherits a device is neither held, nor moves anything."""
    for sleep in '1', None:
        with running(layers, broker, RINGBROKER_LEASE_SLEEP=sleep) as mover:
            brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
            if sleep:
                mover.await_moved(BYTES)
            answer = mover.ask('fork')
            expect(answer == 'forked', answer, mover.stderr())
            mover.expect_same()


def test_pinned(layers, broker):
    """Mapped memory and images stay, and what was mapped moves again once it is not."""
    with running(layers, broker, vram='80MiB') as mover:
        expect(mover.ask('map') == 'mapped 0')
        expect(mover.ask('image') == 'image')
        brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        mover.await_moved(BYTES)
        kept = mover.now['used_bytes']
        expect(kept >= MIB, mover.now)
        expect(mover.ask('unmap') == 'unmapped')
        mover.await_moved(BYTES + MIB)
        expect(mover.now['used_bytes'] == kept - MIB, mover.now, kept)
        answer = mover.ask('map')
        expect(answer == 'mapped 4711', answer)
        mover.expect_same()


def test_free_asleep(layers, broker):
    """Memory is freed while it is away, and all is given back at the end."""
    with running(layers, broker) as mover:
        brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        mover.await_moved(BYTES)
        expect(mover.ask('free 3') == 'freed')
        mover.await_moved(BYTES - 8 * MIB)
        mover.expect_same()
        await_true('memory to come back', lambda: mover.now['moved_bytes'] == 0)
        await_true('a report', lambda: mover.now['used_bytes'] in (0, BYTES - 8 * MIB))
        mover.await_moved(BYTES - 8 * MIB)
        mover.process.stdin.close()
        expect(mover.process.wait() == 0, mover.stderr())
    await_true('the lease to end', lambda: not leases(broker))


def test_lowered(layers, broker):
    """A lowered lease loses as much as it must, and its program goes on from host memory."""
    with running(layers, broker) as mover:
        await_true('a report', lambda: mover.now['movable_bytes'] == BYTES)
        said = brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=24MiB')
        # Some may have gone already.
        found = re.search(r'has (\d+) MiB, and gives back (\d+) MiB: its programs can move \2 MiB to host memory', said)
        expect(found and int(found[1]) - int(found[2]) == 24, said)
        mover.await_moved(40 * MIB)
        for _ in range(2):
            mover.expect_same()
            expect(mover.ask('turn') == 'turned')
        expect(mover.now['moved_bytes'] == 40 * MIB and mover.now['granted_bytes'] == 24 * MIB, mover.now)
        # The layer was refused room, the program nothing.
        expect(mover.now['refused'] == 0, mover.now)
        expect('stay in host memory, for which there is no room' in mover.stderr(), mover.stderr())
        brokerctl(broker, 'lease', str(mover.number_of_lease), '--vram=64MiB')
        await_true('memory to come back', lambda: mover.expect_same() or mover.now['moved_bytes'] == 0)
        mover.expect_same()


def test_asked(layers, broker):
    """A request that waits gets the memory of an idle program, which comes back afterwards."""
    with running(layers, broker, vram='64MiB') as idle:
        await_true('a report', lambda: idle.now['movable_bytes'] == BYTES)
        # The device has 96 MiB.
        with running(layers, broker, vram='64MiB', RINGBROKER_LEASE_MIN='64MiB', RINGBROKER_LEASE_WAIT='60s') as other:
            expect(idle.now['moved_bytes'] == BYTES and idle.now['granted_bytes'] == 0, idle.now)
            expect(re.search(rf'lease {idle.number_of_lease} of .*: its programs are asked for the {BYTES} bytes .*, since lease \d+ of',
                             broker.log()), broker.log())
            await_true('an end of asking', lambda: not idle.now['sleeps'])
            idle.expect_same()
            expect(idle.now['moved_bytes'] > 0 and other.now['granted_bytes'] == BYTES, idle.now, other.now)
            other.expect_same()
        await_true('memory to come back', lambda: idle.expect_same() or idle.now['moved_bytes'] == 0)
        expect(idle.now['granted_bytes'] == BYTES, idle.now)


def has_answered(*movers, limit_s=0):
    return bool(select.select([mover.process.stdout for mover in movers], [], [], limit_s)[0])


def test_held(layers, broker):
    """A held program submits nothing until it is woken, or the broker has ended."""
    with running(layers, broker, vram='72MiB') as mover, running(layers, broker, sizes=['1', '8'], vram='8MiB',
                                                   RINGBROKER_LEASE_SLEEP=None) as fixed:
        for one in mover, fixed:
            said = brokerctl(broker, 'lease', 'sleep', '--hold', str(one.number_of_lease))
            why = brokerctl(broker, 'why', 'lease', str(one.number_of_lease))
            expect(f'are held: each waits in its next submission until brokerctl lease wake {one.number_of_lease}' in why, why)
            expect(f'lease {one.number_of_lease} is held until' in said, said)
            expect(('no memory of its programs can be moved' in said) == (one is fixed), said)
            said = json.loads(brokerctl(broker, 'lease', '--json', 'sleep', '--hold', str(one.number_of_lease)))
            expect(said['lease'] == one.number_of_lease and said['held'], said)
        mover.await_moved(BYTES)
        expect(mover.now['held'] and fixed.now['held'] and fixed.now['granted_bytes'] == 8 * MIB, mover.now, fixed.now)
        # A call that needs memory does not bring back what is held.
        expect(mover.ask('map') == 'mapped 0' and mover.now['moved_bytes'] == BYTES, mover.now)
        for one in mover, fixed:
            one.say('check')
        expect(not has_answered(mover, fixed, limit_s=1), 'a held program goes on')
        expect('the program is held' in mover.stderr(), mover.stderr())
        said = brokerctl(broker, 'lease', 'wake', str(mover.number_of_lease))
        expect("is awake: 64 MiB comes back with its programs' next submissions" in said, said)
        expect(mover.hear() == 'same' and not has_answered(fixed), 'the wrong program goes on')
        said = brokerctl(broker, 'lease', str(fixed.number_of_lease), '--vram=2MiB')
        expect('gives back 6 MiB once its programs free it; none of it can be moved' in said, said)
        broker.end(signal.SIGKILL)
        expect(fixed.hear() == 'same', fixed.stderr())
        mover.expect_same()
        broker.start()
        await_true('the leases', lambda: len(leases(broker)) == 2)
        for one in mover, fixed:
            one.expect_same()


def test_killed(layers, broker):
    """A program that is killed while its memory moves leaves nothing behind; others go on."""
    with running(layers, broker) as stays:
        for at in range(2):
            with running(layers, broker, sizes=['3', '8'], vram='24MiB') as mover:
                brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
                # While its memory moves, or after that.
                await_true('a change', lambda: at == 0 or mover.now['moved_bytes'] > 0)
                time.sleep(1 if at == 0 else 0)
            await_true('its end', lambda: list(leases(broker)) == [stays.number_of_lease])
        stays.expect_same()


def test_unsupported(layers, broker):
    """A device without sparse binding is left alone, and that is said; so are wrong settings."""
    with running(layers, broker, RBK_FAKE_CARD_SPARSE=None) as mover:
        expect('device memory stays where it is while the program is idle: the driver has no sparse binding'
               in mover.stderr(), mover.stderr())
        said = brokerctl(broker, 'lease', 'sleep', str(mover.number_of_lease))
        expect('no memory of its programs can be moved' in said, said)
        mover.expect_same()
        expect(mover.now['movable_bytes'] == 0 and mover.now['granted_bytes'] == BYTES, mover.now)
        for arguments, sentence in (
                (('lease', 'nap', '1'), 'a lease can sleep or wake, not nap'),
                (('lease', 'sleep', 'x'), 'x is not the number of a lease'),
                (('lease', 'wake', '--hold', '1'), '--hold is an option of lease sleep'),
                (('lease', '--hold', '1'), '--hold is an option of lease sleep'),
                (('lease', 'sleep', '1', '--share=3'), 'without sleep or wake')):
            said = brokerctl(broker, *arguments, status=2)
            expect(sentence in said, arguments, said)
        said = brokerctl(broker, 'lease', 'sleep', '4711', status=1)
        expect('there is no lease 4711' in said, said)


def main():
    tests = sys.argv[6:] or [name for name in globals() if name.startswith('test_')]
    with Layers() as layers:
        layers.card = layers.add_card()
        for name in tests:
            begin = time.monotonic()
            with Broker(memory='96MiB' if name == 'test_asked' else '512MiB') as broker:
                globals()[name](layers, broker)
            print(f'{name}: {time.monotonic() - begin:.1f} s', flush=True)


main()
