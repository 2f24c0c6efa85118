#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that share a simulated card's time: the layer restrains their submissions as the broker decides.

    lease-timeslice.py AMDGPU_SIM BROKERD SUBMIT_CLIENT MANIFEST MODEL_CLIENT BROKERCTL [TEST...]

The card executes one submission after the other, in the order in which they came, 10 us for each
workgroup. Figures are printed; a test fails by an order of magnitude only, since the machine's own
scheduler takes part.
"""
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import started
from fakebroker import FEAT_LEASES, LEASE_OPEN, MIB, REPLY_BYTES, hello
from simulated import GPU, PATIENCE_S, Broker, Cards, Client

SIM, BROKERD, CLIENT, MANIFEST, MODEL_CLIENT, BROKERCTL = sys.argv[1:7]
GROUP_US = 10
LEASE_TIMESLICE, FEAT_TIMESLICE = 28, 1 << 18
SLOW = int(os.environ.get('RBK_TEST_SLOW', '1'))
POLICY = '[tenant heavy]\nmatch-exe = {0}/heavy\nweight = 300\n[tenant light]\nmatch-exe = {0}/light\nweight = 100\n'


class TimedBroker(Broker):
    foreign_calls = Broker.foreign_calls | {'pwrite64'}


class Program:
    """submit-client.c under the layer. @priority: None: it does not share the card's time.

    With @dispatches each submission of @us is recorded anew, with so many dispatches. @kind: submit-client's letters for work
    that is not divided.
    """

    def __init__(self, rig, us, depth=8, period_us=0, priority='normal', name='other', dispatches=0, max_part=None, share=0, quiet=False,
                 errors=None, kind=''):
        environment = {**rig.cards.environment, 'XDG_DATA_DIRS': f'{rig.folder}/share:/usr/share',
                       'RINGBROKER_VULKAN_LEASE': '1', 'RINGBROKER_LEASE_VRAM': '64MiB',
                       'RINGBROKER_SOCKET': rig.broker.socket, 'RINGBROKER_LEASE_LOG': '-'}
        if quiet:
            del environment['RINGBROKER_LEASE_LOG']
        # The loader and the driver leak.
        environment['ASAN_OPTIONS'] = environment.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
        if priority:
            environment['RINGBROKER_LEASE_PRIORITY'] = priority
        if max_part:
            environment['RINGBROKER_LEASE_MAX_PART'] = max_part
        if share:
            environment['RINGBROKER_LEASE_SHARE'] = str(share)
        self.us, self.environment = us, environment
        groups = f'{us // GROUP_US // dispatches}x{dispatches}' if dispatches else str(us // GROUP_US)
        arguments = [groups + kind, str(depth), *([str(period_us)] if period_us else [])]
        self.process = started.start([os.path.join(rig.folder, name), *arguments], env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=errors, text=True)
        answer = self.line()
        started.expect(answer == 'ready', 'the program says', answer)

    def line(self):
        return self.process.stdout.readline().rstrip('\n')

    def report(self):
        """Return the submissions since the last report, and their p50, p99 and longest times in us."""
        self.process.stdin.write('report\n')
        self.process.stdin.flush()
        n, *times = self.line().split()
        return int(n), *map(float, times)

    def part_of(self, seconds):
        """Return the part of the card's time that was the program's."""
        return self.report()[0] * self.us / 1e6 / seconds

    def end(self):
        self.process.stdin.close()
        answer = self.line()
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        started.expect(status == 0 and answer == 'ended', 'a program ended with', status, answer)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Rig:
    def __init__(self, folder, cards, broker):
        self.folder, self.cards, self.broker = folder, cards, broker

    def ctl(self, *arguments):
        """Return what brokerctl prints, as an administrator's."""
        result = subprocess.run([BROKERCTL, '--socket', self.broker.socket, *arguments],
                                stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
        return result.stdout

    def leases(self):
        """Return the broker's leases by the process that opened them."""
        return {lease['pid']: lease for lease in map(json.loads, self.ctl('leases', '--json').splitlines())}

    def await_lease(self, program, what, **figures):
        """Wait until the program's lease has these figures."""
        def fits():
            lease = self.leases().get(program.process.pid, {})
            return all(lease.get(name) == value for name, value in figures.items())
        started.wait_for(fits, what)


@contextlib.contextmanager
def begun(policy=''):
    """Start a simulated card that takes time, and its broker, and make a folder for the loader."""
    with tempfile.TemporaryDirectory(prefix='rbk-slices-') as folder, \
            Cards(SIM, 'polaris10,vram=4GiB') as cards:
        for name in ('heavy', 'light', 'other'):
            shutil.copy(CLIENT, os.path.join(folder, name))
        layers = os.path.join(folder, 'share/vulkan/implicit_layer.d')
        os.makedirs(layers)
        shutil.copy(MANIFEST, os.path.join(layers, 'ringbroker_lease.json'))
        cards.control('set', 'execution=timed', 'policy=fifo', 'job-ns=0', f'group-ns={GROUP_US * 1000}')
        with TimedBroker(BROKERD, cards, policy=policy.format(folder)) as broker:
            yield Rig(folder, cards, broker)


def judge(condition, *what):
    """Fail, except under a sanitizer, which takes the time that is measured."""
    started.expect(condition or SLOW > 1, *what)


def measure(programs, seconds):
    for program in programs:
        program.report()
    begin = time.monotonic()
    time.sleep(seconds)
    return [program.report() for program in programs], time.monotonic() - begin


def test_urgent():
    """An urgent program waits for little of a background program, which has the rest of the card."""
    with begun() as rig:
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        (alone, ), _ = measure([urgent], 1)
        urgent.end()
        figures = {}
        for what, priorities in (('apart', (None, None)), ('shared', ('urgent', 'background'))):
            background = Program(rig, 5000, 20, priority=priorities[1])
            urgent = Program(rig, 1000, 1, 20000, priorities[0])
            measure([urgent], .5)
            (mine, others), seconds = measure([urgent, background], 2)
            figures[what] = mine[1], mine[2], others[0] * background.us / 1e6 / seconds
            urgent.end()
            background.end()
        print(f'urgent job of 1 ms, alone: p50 {alone[1]:.0f} us, p99 {alone[2]:.0f} us')
        for what, (p50, p99, part) in figures.items():
            print(f'beside submissions of 5 ms, {what}: p50 {p50:.0f} us, p99 {p99:.0f} us; '
                  f'the background program has {part:.2f} of the card', flush=True)
        judge(figures['apart'][0] > 50000, 'the card has no queue')
        judge(figures['shared'][0] < 12000, 'the urgent program waits')
        judge(figures['shared'][2] > .5, 'the background program gets little')


def measure_beside(*modes):
    """Measure an urgent program beside a background program in parts. @modes: dispatches of a submission, longest part."""
    with begun() as rig:
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        (alone, ), _ = measure([urgent], 1)
        print(f'urgent job of 1 ms, alone: p50 {alone[1]:.0f} us, p99 {alone[2]:.0f} us', flush=True)
        for dispatches, max_part in modes:
            background = Program(rig, 20000, 3, priority='background', dispatches=dispatches, max_part=max_part)
            measure([urgent], .5)
            (mine, others), seconds = measure([urgent, background], 2)
            part = others[0] * background.us / 1e6 / seconds
            print(f'beside submissions of 20 ms, {dispatches} dispatches, parts of {max_part or "500us"}: p50 {mine[1]:.0f} us, '
                  f'p99 {mine[2]:.0f} us; the background program has {part:.2f} of the card', flush=True)
            judge(mine[1] < 5000, 'the urgent program waits for more than a part')
            judge(part > .5, 'the background program gets little')
            background.end()
        urgent.end()


def test_urgent_beside_parts():
    """Command buffers are divided, and long dispatches too, so an urgent program waits for a part of a submission only."""
    measure_beside((100, None), (1, None))


def test_urgent_beside_short_parts():
    measure_beside((100, '200us'), (1, '200us'))


def test_urgent_waits_for_one_part():
    """The next part is submitted shortly before the predicted end of the one under way, so an urgent program waits for half a part."""
    with begun() as rig:
        urgent = Program(rig, 1000, 1, 53000, 'urgent')
        background = Program(rig, 40000, 3, priority='background', dispatches=100, max_part='10ms')
        measure([urgent], .5)
        ((n, p50, *_), others), seconds = measure([urgent, background], 3)
        part = others[0] * background.us / 1e6 / seconds
        print(f'urgent job of 1 ms beside parts of 10 ms: p50 {p50:.0f} us of {n}; the background program has {part:.2f} of the card', flush=True)
        judge(p50 < 13000, 'the urgent program waits for two parts')
        judge(part > .6, 'the background program gets little')
        background.end()
        urgent.end()


def test_slice_ends_before_its_work():
    """The broker gives the card to an urgent program before the background program's last part has ended."""
    with begun() as rig:
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        background = Program(rig, 20000, 3, priority='background', dispatches=1000, max_part='900us')
        number, waits, end = rig.leases()[urgent.process.pid]['lease'], {}, time.monotonic() + 20
        while len(waits) < 40 and time.monotonic() < end:
            measure([urgent, background], .5)
            events = json.loads(rig.ctl('trace'))['traceEvents']
            waits.update({event['ts']: event['dur'] for event in events
                          if event.get('cat', '') == 'lease-wait' and event['args']['lease'] == number})
        waits = sorted(waits.values())
        print(f'waits of the urgent lease beside parts of 900 us: {len(waits)}, p50 {waits[len(waits) // 2]:.0f} us', flush=True)
        judge(waits[len(waits) // 2] < 600, 'the broker waits for the part', waits)
        background.end()
        urgent.end()


def test_long_submission():
    """A submission that the kernel would end after its time limit runs to its end in parts, also if the program is alone."""
    with begun() as rig:
        rig.cards.control('set', 'timeout-ns=300000000')
        parts = Program(rig, 1000000, 1, priority=None, dispatches=100, max_part='50ms')
        started.wait_for(lambda: parts.report()[0] > 0, 'the program gets nowhere')
        parts.end()
        # A device that was lost takes a while to come back, so this is last.
        whole = Program(rig, 1000000, 1, priority=None, dispatches=100)
        answer = whole.line()
        started.expect(answer.startswith('failed') and whole.process.wait(PATIENCE_S) == 1, 'the card has no time limit:', answer)
        print('a submission of 1 s, in parts of 50 ms, ends on a card that resets after 300 ms', flush=True)


def test_weights():
    """Tenants share the card by weight; with one program alone nothing waits."""
    with begun(POLICY) as rig:
        heavy = Program(rig, 2000, 8, name='heavy')
        alone = measure([heavy], .5)
        light = Program(rig, 2000, 8, name='light')
        measure([heavy], .5)
        (a, b), seconds = measure([heavy, light], 2.5)
        whole = (a[0] + b[0]) * 2000 / 1e6 / seconds
        print(f'alone {alone[0][0][0] * 2000 / 1e6 / alone[1]:.2f} of the card; weights of 3:1: '
              f'{a[0] / max(b[0], 1):.2f}:1, together {whole:.2f} of the card', flush=True)
        judge(2.4 < a[0] / max(b[0], 1) < 3.7, 'not 3:1:', a[0], b[0])
        judge(whole > .6, 'the card is idle for long')
        light.end()
        # The other one is not restrained any more.
        (after, ), seconds = measure([heavy], .5)
        judge(after[0] * 2000 / 1e6 / seconds > .6, 'restrained though alone:', after)
        heavy.end()


def test_shares():
    """Programs of one tenant share its time by --share, which an administrator changes while they run."""
    with begun() as rig:
        a, b = Program(rig, 2000, 8, share=75), Program(rig, 2000, 8, share=25)
        measure([a], .5)
        (x, y), seconds = measure([a, b], 2.5)
        ratio, whole = x[0] / max(y[0], 1), (x[0] + y[0]) * 2000 / 1e6 / seconds
        rig.await_lease(a, 'no share of 75', share=75, sharing=True)
        shares = [json.loads(lease)['share'] for lease in rig.ctl('leases', '--json', '--sort=share').splitlines()]
        started.expect(shares == [75, 25], shares)
        number = rig.leases()[b.process.pid]['lease']
        said = rig.ctl('lease', str(number), '--share=225')
        started.expect(said.startswith(f'lease {number} has share 225 among the leases of its tenant, '), said)
        measure([a], .5)
        (x, y), _ = measure([a, b], 2.5)
        print(f'shares of 75:25: {ratio:.2f}:1, together {whole:.2f} of the card; 75:225: 1:{y[0] / max(x[0], 1):.2f}', flush=True)
        judge(2.4 < ratio < 3.7 and whole > .6, 'not 3:1:', ratio)
        judge(2.4 < y[0] / max(x[0], 1) < 3.7, 'not 1:3:', x[0], y[0])
        a.end()
        # The next broker has the share from the program.
        rig.broker.process.kill()
        rig.broker.process.wait()
        rig.broker.start()
        rig.await_lease(b, 'the share is lost', share=225, sharing=True)
        b.end()


def test_priority_of_a_running_program():
    """brokerctl makes a program that asked for nothing share the card, in the background; so does its tenant's section."""
    with begun('[tenant heavy]\nmatch-exe = {0}/heavy\n') as rig:
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        program = Program(rig, 5000, 20, priority=None, name='heavy')
        (before, ), _ = measure([urgent], 1)
        rig.await_lease(program, 'it shares the card', sharing=False)
        # As brokerctl exec in another tenant's shell would start it.
        number = rig.leases()[urgent.process.pid]['lease']
        joining = subprocess.run([f'{rig.folder}/heavy', '1', '1'], stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False,
                                 env={**program.environment, 'RINGBROKER_LEASE': str(number)})
        started.expect(f"lease {number} is tenant default's, and this program tenant heavy's" in joining.stderr,
                       joining.stderr)
        number = rig.leases()[program.process.pid]['lease']
        rig.ctl('lease', str(number), '--priority=background')
        rig.await_lease(program, 'it is not in the background', sharing=True, background=True)
        measure([urgent], .5)
        (after, ), _ = measure([urgent], 1)
        program.end()
        # From the beginning on, its command buffers are divided, too.
        rig.ctl('set', 'heavy', 'exec-priority=background', 'exec-max-part=200us')
        # A share of its own does not outrank that.
        program = Program(rig, 5000, 20, priority=None, name='heavy', dispatches=100, share=25)
        rig.await_lease(program, 'it is not in the background', sharing=True, background=True)
        measure([urgent], .5)
        (parts, others), seconds = measure([urgent, program], 1)
        print(f'urgent job of 1 ms beside a program that asked for nothing: p50 {before[1]:.0f} us; made background work: '
              f'{after[1]:.0f}; by its tenant: {parts[1]:.0f} us, and the program has '
              f'{others[0] * 5000 / 1e6 / seconds:.2f} of the card', flush=True)
        judge(before[1] > 50000, 'the card has no queue')
        judge(after[1] < 12000, 'the urgent program waits')
        judge(parts[1] < 5000, 'the urgent program waits for more than parts')
        program.end()
        # A priority is shown as it counts.
        rig.await_lease(urgent, 'it is not urgent', urgent=True, high=False)
        rig.ctl('set', 'default', 'priority-max=high')
        rig.await_lease(urgent, 'its priority is not lowered', urgent=False, high=True)
        number = rig.leases()[urgent.process.pid]['lease']
        said = rig.ctl('lease', str(number), '--priority=urgent')
        started.expect(said == f'lease {number} has priority urgent, which priority-max of tenant default lowers to high\n', said)
        record = json.loads(rig.ctl('lease', '--json', str(number), '--priority=background'))
        started.expect(record['lease'] == number and record['background'], record)
        urgent.end()


def test_shares_no_longer():
    """A program stops sharing the card, and begins again, by its lease and by its tenant's section."""
    with begun('[tenant heavy]\nmatch-exe = {0}/heavy\n') as rig:
        urgent = Program(rig, 1000, 1, 20000, 'urgent')
        program = Program(rig, 5000, 20, priority='background', name='heavy')
        rig.await_lease(program, 'it is not in the background', sharing=True, background=True)
        number, p50 = rig.leases()[program.process.pid]['lease'], {}
        for priority in ('none', 'background', 'none', 'normal', 'background'):
            rig.ctl('lease', str(number), f'--priority={priority}')
            rig.await_lease(program, f'not {priority}', sharing=priority != 'none', background=priority == 'background')
            measure([urgent], .5)
            ((_, p50[priority], *_), ), _ = measure([urgent], 1)
        print('urgent job of 1 ms beside a program whose priority is changed:',
              ', '.join(f'{name}: p50 {us:.0f} us' for name, us in p50.items()), flush=True)
        judge(p50['none'] > 50000, 'it is still held back')
        judge(p50['background'] < 25000 and p50['normal'] < 25000, 'the urgent program waits')
        # The next broker knows of it, too, though the program was started with a priority.
        rig.ctl('lease', str(number), '--priority=none')
        rig.await_lease(program, 'it shares the card', sharing=False)
        rig.broker.process.kill()
        rig.broker.process.wait()
        rig.broker.start()
        rig.await_lease(program, 'it is not restored', restored=True)
        time.sleep(1.5)
        rig.await_lease(program, 'it shares the card', sharing=False)
        program.end()
        # The programs of a tenant follow its section.
        program = Program(rig, 5000, 20, priority=None, name='heavy')
        rig.await_lease(program, 'it shares the card', sharing=False)
        for priority in ('background', 'urgent', 'no', 'background', 'normal', 'no'):
            rig.ctl('set', 'heavy', f'exec-priority={priority}')
            rig.await_lease(program, f'not {priority}', sharing=priority != 'no', background=priority == 'background', urgent=priority == 'urgent')
        (_, others), _ = measure([urgent, program], 1)
        judge(others[0] > 50, 'it gets nowhere:', others)
        # So they do when the file is read again; but a program stays in its tenant, whatever another section matches.
        rig.broker.write(f'[tenant heavy]\nmatch-exe = /none\nexec-priority = background\n'
                         f'[tenant new]\nmatch-exe = {rig.folder}/heavy\nexec-priority = urgent\n')
        rig.broker.process.send_signal(signal.SIGHUP)
        rig.await_lease(program, 'the file has no effect', tenant='heavy', sharing=True, background=True)
        program.end()
        program = Program(rig, 5000, 20, priority=None, name='heavy')
        rig.await_lease(program, 'the new section has no effect', tenant='new', sharing=True, urgent=True)
        program.end()
        urgent.end()


def share(path):
    """Connect as a client whose lease shares the card, and does nothing."""
    client, *_ = hello(path, minor=4, features=FEAT_LEASES | FEAT_TIMESLICE)
    client.send(struct.pack('=6I16x4Q64x', LEASE_OPEN, 1, 0, 0, 255, 0, MIB, MIB, MIB, 0))
    number, = struct.unpack_from('=I', client.recv(1 << 16), REPLY_BYTES)
    client.send(struct.pack('=6I', LEASE_TIMESLICE, 2, number, 1, 0, 0))
    started.expect(struct.unpack_from('=IIi', client.recv(1 << 16)) == (LEASE_TIMESLICE, 2, 0), 'not shared')
    return client


def test_refused_at_first():
    """A tenant's seventeenth program shares the card once another one has left, and says that it does so in whole submissions."""
    with begun() as rig, open(os.path.join(rig.folder, 'errors'), 'w+', encoding='utf-8') as errors:
        def lines():
            with open(errors.name, encoding='utf-8') as file:
                return file.read().splitlines()

        others = [share(rig.broker.socket) for _ in range(16)]
        program = Program(rig, 1000, 1, 20000, quiet=True, errors=errors)
        measure([program], .5)
        rig.await_lease(program, 'it shares the card', sharing=False)
        started.expect(len(lines()) == 1 and 'is not held back: 16 leases of the tenant do' in lines()[0], lines())
        others.pop().close()
        rig.await_lease(program, 'it does not share the card', sharing=True)
        started.wait_for(lambda: len(lines()) == 2, 'it says nothing')
        started.expect("shares its device's time now, but submissions stay whole" in lines()[1], lines())
        for client in others:
            client.close()
        program.end()
        started.expect(len(lines()) == 2, lines())


def test_holder_is_killed_or_stopped():
    with begun() as rig:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            waits = []
            other = Program(rig, 1000, 2)
            for _ in range(3):
                victim = Program(rig, 1000, 2)
                measure([other], .2)
                victim.process.send_signal(number)
                other.report()
                time.sleep(.3)
                waits.append(other.report()[3])
                victim.kill()
            print(f'longest submission of the other program after signal {number}: '
                  f'{max(waits) / 1000:.1f} ms', flush=True)
            judge(max(waits) < 250000, waits)
            other.end()


def test_crossed_semaphores():
    """Programs whose submissions wait for their own later ones, and for the host, go on."""
    with begun() as rig:
        crossed, other = Program(rig, 100, 0), Program(rig, 1000, 4)
        (a, b), _ = measure([crossed, other], 1.5)
        print(f'crossed: {a[0]} ends, p50 {a[1]:.0f} us; the other: {b[0]}', flush=True)
        judge(a[0] > 5 and b[0] > 50, a, b)
        crossed.end()
        other.end()


def test_many_wait():
    """More submissions than the layer follows wait for the host: each one after a while is let through."""
    with begun() as rig:
        late, other = Program(rig, 100, -80), Program(rig, 1000, 4)
        measure([late], 1)
        begin = time.monotonic()
        started.wait_for(lambda: late.report()[0] > 0, 'the program hangs')
        ((n, *_), ), _ = measure([other], 2)
        print(f'80 submissions that wait: {time.monotonic() - begin:.1f} s at most; the other program: {n} in 2 s', flush=True)
        judge(n > 60, 'the other one waits')
        late.end()
        other.end()


def test_broker_is_stopped():
    """The first submission waits for two seconds; from then on nothing does, until the broker answers."""
    with begun(POLICY) as rig:
        heavy, light = Program(rig, 2000, 8, name='heavy'), Program(rig, 2000, 8, name='light')
        measure([heavy], .5)
        rig.broker.process.send_signal(signal.SIGSTOP)
        measure([heavy], 2.5)
        (a, b), seconds = measure([heavy, light], 2)
        rig.broker.process.send_signal(signal.SIGCONT)
        whole = (a[0] + b[0]) * 2000 / 1e6 / seconds
        print(f'beside a stopped broker: {whole:.2f} of the card', flush=True)
        judge(whole > .8, a, b)
        measure([heavy], 1.5)
        (a, b), _ = measure([heavy, light], 2)
        judge(2.2 < a[0] / max(b[0], 1) < 4, 'not 3:1 again', a, b)
        heavy.end()
        light.end()


def test_plans():
    """Tasks of plans wait for little of a program that shares the card, and hardly for one in the background."""
    with begun() as rig, Client(MODEL_CLIENT, rig.broker) as client:
        def rate():
            """Return the tasks per second that ran on the card, one after the other."""
            client.tell('start', 'm')
            begin = time.monotonic()
            time.sleep(1)
            _, by = client.stop('m')
            return sum(n for (device, _), n in by.items() if device == GPU) / (time.monotonic() - begin)

        client.tell('plan', 'm', '1')
        client.await_state('m', 'vram')
        rate()
        rates = {'alone': rate()}
        for what, priority, dispatches in (('apart', None, 0), ('whole', 'normal', 0), ('parts', 'normal', 100),
                                           ('background', 'background', 0)):
            program = Program(rig, 5000, 20, priority=priority, dispatches=dispatches)
            # It is not restrained before the broker has seen that the card has tasks.
            client.tell('run', 'm')
            measure([program], .5)
            rates[what] = rate()
            if what != 'background':
                program.end()
        # The broker has tasks until it had none for a second.
        ((n, *_), ), seconds = measure([program], 1.5)
        part = n * program.us / 1e6 / seconds
        program.end()
        print('tasks of plans per second:', {name: round(rate) for name, rate in rates.items()},
              f'part of the background program afterwards: {part:.2f}', flush=True)
        judge(rates['whole'] > 3 * rates['apart'], 'the tasks wait for the whole queue')
        judge(rates['parts'] > 9 * rates['apart'], 'the tasks wait for whole submissions')
        judge(rates['background'] > .5 * rates['alone'], 'background work comes before the tasks')
        judge(part > .9, 'the program is held back after the tasks')


def test_plans_count():
    """The time of a tenant's plans counts as that of its programs, which leave more of the card to others."""
    policy = '[tenant both]\nmatch-exe = {0}/heavy, ' + os.path.realpath(MODEL_CLIENT) + '\n[tenant light]\nmatch-exe = {0}/light\n'
    with begun(policy) as rig, Client(MODEL_CLIENT, rig.broker) as client:
        client.tell('plan', 'm', '1')
        client.await_state('m', 'vram')
        both, light = Program(rig, 1000, 4, name='heavy'), Program(rig, 1000, 4, name='light')
        measure([both], .5)
        (a, b), _ = measure([both, light], 1.5)
        client.tell('start', 'm')
        measure([both], 1)
        (c, d), _ = measure([both, light], 2.5)
        _, by = client.stop('m')
        n = sum(n for (device, _), n in by.items() if device == GPU)
        print(f'submissions of two tenants: {a[0]}, {b[0]}; while the first one has {n} tasks of plans on the card: {c[0]}, {d[0]}', flush=True)
        judge(.7 < a[0] / max(b[0], 1) < 1.4, 'not 1:1')
        judge(c[0] < .75 * d[0], 'its plans do not count')
        both.end()
        light.end()


def test_broker_ends():
    """Without a broker nothing waits; the next one restrains the programs again."""
    with begun(POLICY) as rig:
        heavy, light = Program(rig, 2000, 8, name='heavy'), Program(rig, 2000, 8, name='light')
        measure([heavy], .5)
        rig.broker.process.kill()
        rig.broker.process.wait()
        measure([heavy], .3)
        (a, b), seconds = measure([heavy, light], 1)
        print(f'without a broker: {(a[0] + b[0]) * 2000 / 1e6 / seconds:.2f} of the card', flush=True)
        judge((a[0] + b[0]) * 2000 / 1e6 / seconds > .5, a, b)
        rig.broker.start()
        measure([heavy], 1.5)
        (a, b), _ = measure([heavy, light], 1.5)
        print(f'with the next one: {a[0] / max(b[0], 1):.2f}:1', flush=True)
        judge(2.2 < a[0] / max(b[0], 1) < 4, 'not 3:1 again', a, b)
        heavy.end()
        light.end()


if __name__ == '__main__':
    for name, test in list(globals().items()):
        if name.startswith('test_') and (len(sys.argv) < 8 or name in sys.argv[7:]):
            print(name, flush=True)
            test()
