#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The device gate, on this kernel: which processes open GPUs, and brokerctl's messages.

    device-gate.py BROKERCTL BROKERD STATS_CLIENT GATE_CLIENT [TEST...]

The test needs no GPU: the kernel asks the gate before it looks for a driver. A device node without a
driver cannot be opened in any case, but the error distinguishes the two: ENXIO means that the gate let
the process pass.

The test needs root and runs in a mount namespace of its own; otherwise it is skipped, with the reason.
"""
import atexit
import contextlib
import fcntl
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

if os.geteuid() != 0:
    print('skipped: attaching a program to a cgroup is for root')
    sys.exit(77)
if 'RBK_IN_NAMESPACE' not in os.environ:
    # Mounts made inside stay inside; mounts made outside propagate in.
    NAMESPACE = ['unshare', '--mount', '--propagation', 'slave']
    if subprocess.run([*NAMESPACE, 'true'], check=False).returncode != 0:
        print('skipped: no mount namespaces here')
        sys.exit(77)
    os.environ['RBK_IN_NAMESPACE'] = '1'
    os.execvp('unshare', [*NAMESPACE, sys.executable, '-B', *sys.argv])

from ctlrig import (BROKERD, CTL, FAILED, LIMIT, NOT_PERMITTED, OK, USAGE, ctl, expect, objects, of_type,
                    wait_for)
from started import start, start_broker

CLIENT = os.path.abspath(sys.argv[4])
NOBODY = 64000
CLOSED, PASSED = 'closed', 'passed'
SETTLE_S = 10
LEASE = ('--no-layer', '--quiet', '--vram=1MiB', '--')

# Systems that run services in mount namespaces of their own set this propagation.
subprocess.run(['mount', '--make-rshared', '/'], check=True)
folder = tempfile.mkdtemp(prefix='rbk-gate-')
subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=755', 'gate', folder], check=True)


def find_cgroups():
    with open('/proc/self/mounts', encoding='utf-8') as file:
        for line in file:
            _, path, kind = line.split()[:3]
            if kind == 'cgroup2':
                return path
    path = os.path.join(folder, 'cgroup')
    os.mkdir(path)
    result = subprocess.run(['mount', '-t', 'cgroup2', 'gate', path], stderr=subprocess.PIPE, check=False)
    if result.returncode:
        print('skipped: there are no cgroups of version 2:', result.stderr)
        sys.exit(77)
    return path


ROOT = find_cgroups()
TOP = os.path.join(ROOT, f'rbk-gate-{os.getpid()}')


def cgroup(*names, uid=0):
    path = os.path.join(TOP, *names)
    os.makedirs(path, exist_ok=True)
    for name in ('', 'cgroup.procs', 'cgroup.subtree_control', 'cgroup.threads'):
        os.chown(os.path.join(path, name), uid, uid)
    return path


def relative(path):
    return path[len(ROOT):]


def kill_all(path):
    for at, _, _ in os.walk(path):
        with contextlib.suppress(OSError), open(os.path.join(at, 'cgroup.procs'), encoding='ascii') as file:
            for pid in file.read().split():
                if int(pid) > 0:
                    os.kill(int(pid), signal.SIGKILL)


def remove(path):
    """Remove the cgroup and kill all processes in it, which the test has started."""
    end = time.monotonic() + LIMIT
    while os.path.isdir(path) and time.monotonic() < end:
        kill_all(path)
        for at, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(at)
        time.sleep(0.01)


@atexit.register
def clean_up():
    remove(TOP)
    subprocess.run(['umount', '--lazy', folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


# --- Nodes ---

def node(name, major, minor, kind=0o020000):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        os.mknod(path, 0o666 | kind, os.makedev(major, minor))
        os.chmod(path, 0o666)
    return path


RENDER = node('renderD128', 226, 128)
CARD = node('card0', 226, 0)
NVIDIA = node('nvidia0', 195, 0)
UNUSED = node('unused', 195, 200)
ZERO = node('zero', 1, 5)
BLOCK = node('block', 226, 0, 0o060000)


def enter(path, uid=None):
    def prepare():
        if path:
            with open(os.path.join(path, 'cgroup.procs'), 'w', encoding='ascii') as file:
                file.write('0')
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
    return prepare


class Opener:
    """A process that opens device nodes, in a cgroup, optionally with a lease."""

    def __init__(self, at=None, broker=None, uid=None, errors=subprocess.PIPE, options=LEASE):
        command = [CLIENT, 'open']
        if broker:
            command = [CTL, '--socket', broker.socket, 'exec', *options, *command]
        self.process = start(command, preexec_fn=enter(at, uid), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=errors, text=True)
        expect(self.hear() == 'ready', 'it did not begin', self.process.poll())

    def hear(self):
        return self.process.stdout.readline().strip()

    def ask(self, *words):
        self.process.stdin.write(' '.join(words) + '\n')
        self.process.stdin.flush()
        return self.hear()

    def opens(self, path=RENDER):
        return self.ask('open', path)

    def end(self):
        """Return its standard error."""
        self.process.stdin.close()
        text = self.process.stderr.read() if self.process.stderr else ''
        self.process.wait(LIMIT)
        return text


def opens(at, path=RENDER, uid=None):
    opener = Opener(at, uid=uid)
    result = opener.opens(path)
    opener.end()
    return result


# --- Brokers ---

class Broker:
    """A broker whose socket and gate are in a folder of its own. @uid: run it without privileges."""

    def __init__(self, name, uid=0, sees=True):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder, 0o755)
        os.chown(self.folder, uid, uid)
        self.socket = os.path.join(self.folder, 'brokerd.sock')
        self.gate = os.path.join(self.folder, 'gate')
        self.log_path = os.path.join(self.folder, 'log')
        self.uid = uid
        self.run()

    def run(self):
        command = [BROKERD, '--socket', self.socket, '--cache', self.folder, '--gpu=software',
                   '--device-memory=64MiB', '--calibration=none', '--contention=none',
                   '--socket-mode=0666', '--log-level=debug']
        if self.uid:
            # systemd runs the broker like this: it sees later mounts and has no capability.
            command = ['unshare', '--mount', '--propagation', 'slave', 'setpriv', f'--reuid={self.uid}',
                       f'--regid={self.uid}', '--clear-groups', '--inh-caps=-all', '--bounding-set=-all',
                       '--no-new-privs', *command]
        self.process = start_broker(command, self.log_path, LIMIT)
        if 'llvmpipe' not in self.log():
            print('skipped: no software Vulkan device')
            sys.exit(77)

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(LIMIT)

    def on(self, *paths, options=()):
        for path in paths:
            ctl(self, 'gate', 'on', f'--cgroup={relative(path)}', *options)

    def off(self, *options):
        ctl(self, 'gate', 'off', *options)

    def gates(self):
        return of_type(objects(ctl(self, 'gate', 'status', '--json')), 'gate')

    def about(self):
        return of_type(objects(ctl(self, 'gate', 'status', '--json')), 'gates')[0]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0]:
            print(self.log()[-4000:])
        subprocess.run([CTL, '--socket', self.socket, 'gate', 'off'], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        if self.process.poll() is None:
            self.end()


def skip_without_gate_support():
    """End the test if the kernel has no gate."""
    result = subprocess.run([CTL, '--socket', os.path.join(folder, 'brokerd.sock'), 'gate', 'on',
                             '--cgroup', cgroup('try')], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, check=False)
    if re.search('needs Linux 6.1|does not let brokerctl|without programs|only root may|cannot make a file', result.stderr):
        print('skipped:', result.stderr.strip())
        sys.exit(77)
    expect(result.returncode == 0, result.stderr)
    result = subprocess.run([CTL, '--socket', os.path.join(folder, 'brokerd.sock'), 'gate', 'off'], check=False)
    expect(result.returncode == 0, 'gate off failed')
    expect(not os.path.exists(os.path.join(folder, 'gate')), 'the folder is left')


# --- Tests ---

def test_closed():
    """GPUs are closed in the cgroup and below it; other devices and cgroups stay open."""
    with Broker('closed') as broker:
        at = cgroup('closed')
        below = cgroup('closed', 'below')
        expect(opens(at) == PASSED, 'without a gate')
        broker.on(at)
        for path in (RENDER, CARD, NVIDIA):
            expect(opens(at, path) == CLOSED, path, opens(at, path))
            expect(opens(below, path) == CLOSED, path, 'below')
            expect(opens(None, path) == PASSED, path, 'elsewhere')
        expect(opens(at, ZERO) == 'opened', 'what is no GPU is not its business')
        expect(opens(at, BLOCK) == PASSED, 'nor are block devices')
        opener = Opener(at)
        expect(opener.ask('mknod', os.path.join(folder, 'made')) == CLOSED, 'mknod')
        expect(opener.ask('move', TOP) == 'moved' and opener.opens() == PASSED, 'one that leaves')
        expect(opener.ask('move', at) == 'moved' and opener.opens() == CLOSED, 'one that comes')
        opener.end()
        # The gate closes only the named nodes.
        broker.off()
        broker.on(at, options=[f'--nodes={CARD},{NVIDIA}'])
        expect(opens(at, CARD) == CLOSED and opens(at, NVIDIA) == CLOSED, 'named')
        expect(opens(at, RENDER) == PASSED, 'not named')
        broker.off()
        expect(opens(at, CARD) == PASSED, 'opened again')


def test_lease():
    """A process with a lease passes with all its children; other processes do not."""
    with Broker('lease') as broker:
        at = cgroup('lease')
        broker.on(at)
        opener = Opener(at, broker)
        expect(opener.opens() == PASSED and opener.opens(CARD) == PASSED, 'with a lease')
        expect(opener.ask('child', RENDER) == PASSED, 'its child')
        expect(opener.ask('mknod', os.path.join(folder, 'made')) == PASSED, 'mknod')
        expect(opens(at) == CLOSED, 'a neighbour')
        expect(broker.about()['leases'] == 1, broker.about())
        expect(opener.ask('below', ROOT) == 'moved' and opener.opens() == PASSED, 'below its cgroup')
        expect(opener.ask('user', str(NOBODY)) == 'changed' and opener.opens() == CLOSED, 'another user')
        opener.end()
        expect(broker.about()['leases'] == 0, 'the lease has ended', broker.about())

        opener = Opener(at, broker)
        expect(opener.opens() == PASSED, 'with a lease')
        expect(opener.ask('move', at) == 'moved' and opener.opens() == CLOSED, 'out of its cgroup')
        opener.end()
        # The program belongs to another user and runs in a cgroup delegated to that user.
        theirs = cgroup('lease', 'theirs', uid=NOBODY)
        opener = Opener(theirs, broker, uid=NOBODY)
        expect(opener.opens() == PASSED, 'a user with a lease')
        expect(opens(theirs, uid=NOBODY) == CLOSED, 'that user, without')
        opener.end()


def test_lease_end():
    """Processes that stay in the cgroup of a lease do not pass after the lease has ended."""
    with Broker('end') as broker:
        at = cgroup('end')
        broker.on(at)
        opener = Opener(at, broker)
        expect(opener.opens() == PASSED, 'with a lease')
        opener.process.kill()
        wait_for(lambda: broker.about()['leases'] == 0, 'the lease ends with brokerctl')
        expect(opener.opens() == CLOSED, 'when the lease has ended')
        opener.process.stdin.close()


def tell(broker, at, *paths, uid=None):
    process = start([CLIENT, 'tell', broker.socket, *paths], preexec_fn=enter(at, uid), stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().split()


def test_open_already():
    """Open descriptors stay open, and may be passed on: the kernel asks the gate at open() only."""
    with Broker('already') as broker:
        at = cgroup('already')
        opened = os.open(ZERO, os.O_RDONLY)
        broker.on(at, options=[f'--nodes={ZERO}'])
        expect(opens(at, ZERO) == CLOSED, 'opened now')
        result = subprocess.run(['head', '-c', '3'], stdin=opened, stdout=subprocess.PIPE,
                                preexec_fn=enter(at), check=True)
        expect(result.stdout == b'\0\0\0' and broker.gates()[0]['refused'] == 1, 'opened before')
        os.close(opened)


def test_shared_cgroup():
    """A lease opens the gate for no cgroup that has other processes, whoever claims it."""
    with Broker('shared') as broker:
        at = cgroup('shared')
        session = cgroup('shared', 'session-1.scope', uid=NOBODY)
        service = cgroup('shared', 'other.service', uid=NOBODY)
        broker.on(at)
        expect(opens(session, uid=NOBODY) == CLOSED, 'before')
        for path in (session, service, at, ROOT):
            uid = 0 if path in (at, ROOT) else NOBODY
            process, answers = tell(broker, session, path, uid=uid)
            expect(answers == ['0'], 'the lease may have that cgroup', answers)
            expect(opens(path if path != ROOT else at, uid=uid) == CLOSED, path, 'is shared')
            process.stdin.close()
            process.wait(LIMIT)
        # The cgroup does not belong to the requesting user: the broker refuses it.
        mine = cgroup('shared', 'ringbroker-exec-1')
        process, answers = tell(broker, session, mine, uid=NOBODY)
        expect(answers == ['EPERM'] and opens(mine, uid=NOBODY) == CLOSED, answers)
        process.stdin.close()
        process.wait(LIMIT)
        # The cgroup was made for the lease.
        own = cgroup('shared', 'session-1.scope', 'ringbroker-exec-2', uid=NOBODY)
        process, answers = tell(broker, session, own, uid=NOBODY)
        expect(answers == ['0'] and opens(own, uid=NOBODY) == PASSED, answers)
        expect(opens(own) == CLOSED, 'root is another user')
        expect(opens(session, uid=NOBODY) == CLOSED, 'around it')
        process.stdin.close()
        process.wait(LIMIT)
        wait_for(lambda: opens(own, uid=NOBODY) == CLOSED, 'the lease has ended')


def test_left_cgroups():
    """The next brokerctl exec removes the cgroups of a killed one."""
    with Broker('left') as broker:
        at = cgroup('left')
        # 4194305 exceeds the largest process number.
        gone = [cgroup('left', name) for name in ('ringbroker-exec-4194305', 'ringbroker-exec-4194305-own')]
        kept = [cgroup('left', name) for name in ('ringbroker-exec-1', 'ringbroker-exec-4194305-else')]
        Opener(at, broker).end()
        expect(not any(map(os.path.exists, gone)), 'left for ever')
        expect(all(map(os.path.exists, kept)), "taken from others")


def test_exec_reports_missing_cgroup():
    """brokerctl exec reports a program that is behind the gate without a cgroup of its own."""
    with Broker('why') as broker:
        at = cgroup('why', uid=0)
        broker.on(at)
        # The user may not make a cgroup here.
        opener = Opener(at, broker, uid=NOBODY)
        expect(opener.opens() == CLOSED, 'without a cgroup')
        text = opener.end()
        expect(relative(at) in text and 'gate' in text and text.count('\n') == 1, text)
        opener = Opener(cgroup('elsewhere'), broker)
        expect(opener.end() == '', 'not behind a gate')
        # The root's gate covers every cgroup; it names a device that no other process opens.
        broker.on(ROOT, options=[f'--nodes={UNUSED}'])
        text = Opener(cgroup('elsewhere'), broker, uid=NOBODY).end()
        expect('gate of /' in text and text.count('\n') == 1, text)


def test_broker_dies():
    """Without a broker leases keep their access; the next broker admits only the restored leases."""
    with Broker('dies') as broker:
        at = cgroup('dies')
        broker.on(at)
        stays, leaves = Opener(at, broker), Opener(at, broker)
        expect(stays.opens() == PASSED and leaves.opens() == PASSED, 'with leases')
        broker.end(signal.SIGKILL)
        expect(stays.opens() == PASSED, 'without a broker')
        expect(opens(at) == CLOSED, 'for others it stays closed')
        expect(broker.about()['broker_pid'] is None, broker.about())
        leaves.process.kill()
        leaves.process.wait(LIMIT)
        expect(leaves.opens() == PASSED, 'access ended before the lease')
        broker.run()
        expect(stays.opens() == PASSED, 'at once')
        expect(broker.about()['broker_pid'] == broker.process.pid, broker.about())
        wait_for(lambda: leaves.opens() == CLOSED, 'its lease did not come back')
        wait_for(lambda: stays.opens() == PASSED, 'its lease came back')
        expect(broker.about()['leases'] == 1, broker.about())
        # An orderly end of the broker has the same effect as a kill.
        broker.end()
        expect(stays.opens() == PASSED, 'after an orderly end')
        broker.run()
        time.sleep(SETTLE_S + 2)
        wait_for(lambda: stays.opens() == PASSED, 'and after that of another one')
        stays.end()
        expect(broker.about()['leases'] == 0, broker.about())
        leaves.process.stdin.close()


def test_gate_during_leases():
    """A gate that is closed while leases are held admits them from the first moment."""
    with Broker('comes') as broker:
        at = cgroup('comes')
        opener = Opener(at, broker)
        for _ in range(5):
            broker.on(at)
            expect(opener.opens() == PASSED and opens(at) == CLOSED, 'closed')
            expect(broker.gates()[0]['refused'] == 1, broker.gates())
            broker.off()
            expect(not os.path.exists(broker.gate), 'the folder is left')
            expect(opens(at) == PASSED, 'open')
        # The gate is removed, first by unmounting its file system, then by removing the link.
        broker.on(at)
        subprocess.run(['umount', broker.gate], check=False)
        wait_for(lambda: opens(at) == PASSED, 'unmounted')
        wait_for(lambda: 'gate' in broker.log().splitlines()[-1], 'the broker sees it')
        broker.on(at)
        os.unlink(os.path.join(broker.gate, str(os.stat(at).st_ino)))
        # The kernel releases the gate's program some time later.
        wait_for(lambda: opens(at) == PASSED, 'without its link')
        broker.on(at)
        expect(opens(at) == CLOSED and opener.opens() == PASSED, 'with another one')
        opener.end()
        log = broker.log()
        expect('keeps GPUs closed' in log and 'it is open to 1 lease\n' in log
               and 'was removed' in log, log)


def test_two_gates():
    """Gates can be side by side or nested, and each ends independently."""
    with Broker('two') as broker:
        one, two, inner = cgroup('one'), cgroup('two'), cgroup('one', 'inner')
        broker.on(one, two, inner)
        expect(len(broker.gates()) == 3, broker.gates())
        broker.on(one)
        expect(len(broker.gates()) == 3, 'closed twice')
        expect([opens(at) for at in (one, two, inner)] == [CLOSED] * 3, 'closed')
        opener = Opener(inner, broker)
        expect(opener.opens() == PASSED, 'through both')
        broker.off(f'--cgroup={relative(one)}')
        expect([opens(at) for at in (one, two, inner)] == [PASSED, CLOSED, CLOSED], 'one less')
        expect(opener.opens() == PASSED, 'through the one that is left')
        broker.off(f'--cgroup={two}/')
        ctl(broker, 'gate', 'off', f'--cgroup={relative(two)}', status=FAILED)
        expect(len(broker.gates()) == 1, broker.gates())
        opener.end()
        broker.off()
        expect(broker.gates() == [] and opens(inner) == PASSED, 'none is left')
        expect('no gate' in ctl(broker, 'gate', 'off'), 'none')
        # The gates of two brokers must both admit the program.
        with Broker('other') as other:
            broker.on(one)
            other.on(one)
            opener = Opener(one, broker)
            expect(opener.opens() == CLOSED, 'the other one has no such lease')
            other.off()
            expect(opener.opens() == PASSED, 'only its own')
            opener.end()


def test_unprivileged_broker():
    """The broker needs no privilege except write access to the map."""
    with Broker('unprivileged', uid=NOBODY) as broker:
        at = cgroup('unprivileged')
        broker.on(at)
        wait_for(lambda: 'keeps GPUs closed' in broker.log(), 'the broker sees the gate')
        opener = Opener(at, broker)
        expect(opener.opens() == PASSED, 'with a lease')
        broker.end(signal.SIGKILL)
        broker.run()
        expect('keeps GPUs closed' in broker.log(), broker.log())
        wait_for(lambda: broker.about()['leases'] == 1, 'the lease comes back')
        expect(opener.opens() == PASSED, 'with the next broker')
        opener.end()
        broker.off()
        wait_for(lambda: 'was removed' in broker.log(), 'the broker sees that it is gone')
        # The gate is made for a user other than the broker's.
        result = subprocess.run([CTL, '--socket', broker.socket, 'gate', 'on', '--user=root', f'--cgroup={at}'],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode == 0 and 'has not seen' in result.stderr, result)
        expect('may not be written by this user' in broker.log(), broker.log())
        expect(opens(at) == CLOSED, 'closed')
        expect('new leases cannot pass' in ctl(broker, 'status'), 'status says nothing')


def test_refusals_are_reported():
    """Refused processes are reported to the users concerned."""
    with Broker('said') as broker:
        at = cgroup('said')
        expect('there is no gate' in ctl(broker, 'check', status=None), 'check')
        broker.on(at)
        for _ in range(11):
            refused = Opener(at)
            refused.opens()
            refused.end()
        opener = Opener(at, broker)
        opener.opens()
        gate = broker.gates()[0]
        expect(gate['cgroup'] == relative(at) and gate['refused'] == 11 and gate['passed'] == 1, gate)
        expect(gate['cgroup_id'] == os.stat(at).st_ino, gate)
        numbers = [refusal['number'] for refusal in gate['refusals']]
        expect(numbers == list(range(11, 3, -1)), numbers)
        last = gate['refusals'][0]
        expect(last['pid'] == refused.process.pid and last['uid'] == 0 and last['comm'] == 'gate-client'
               and (last['major'], last['minor']) == (226, 128), last)
        expect(0 <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) - last['at_boot_ns'] < 60e9 * LIMIT, last)
        for command in ('gate status', 'status', 'check'):
            text = ctl(broker, *command.split(), status=None)
            expect(relative(at) in text and '11 ' in text and f'process {last["pid"]} (gate-client)' in text,
                   command, text)
        expect(relative(at) in objects(ctl(broker, 'status', '--json'))[0]['gates'], 'status --json')
        check_unprivileged(broker, at)
        opener.end()
        # The cgroup is removed, and a new cgroup gets its name.
        remove(at)
        expect(broker.gates()[0]['gone'], 'gone')
        text = ctl(broker, 'status')
        expect(f'{relative(at)}, gone with its cgroup' in text, text)
        expect('is gone' in ctl(broker, 'status') and 'is gone' in ctl(broker, 'check', status=None), 'gone')
        cgroup('said')
        expect(broker.gates()[0]['gone'] and opens(at) == PASSED, 'another one')
        broker.on(at)
        expect(opens(at) == CLOSED, 'a gate of the other one')
        expect(len(broker.gates()) == 1, 'that of the cgroup that is gone is still there')
        broker.off()


def check_unprivileged(broker, at):
    for what, status in (('on', NOT_PERMITTED), ('off', NOT_PERMITTED), ('status', NOT_PERMITTED)):
        result = subprocess.run([CTL, '--socket', broker.socket, 'gate', what, f'--cgroup={at}'],
                                preexec_fn=enter(None, NOBODY), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode == status, what, result)
        expect(result.stdout == '' and result.stderr.count('\n') == 1 and 'root' in result.stderr, what, result)
    result = subprocess.run([CTL, '--socket', broker.socket, 'check'], preexec_fn=enter(at, NOBODY),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    expect(re.search(rf'device-gate .*{relative(at)}.*brokerctl exec', result.stdout), result.stdout)
    for bad in (['on'], ['on', '--cgroup=/there/is/none'], ['closed'], [], ['on', 'off'],
                ['on', f'--cgroup={at}', '--user=there-is-no-such-user'],
                ['on', f'--cgroup={at}', '--nodes=/etc/passwd'], ['on', f'--cgroup={at}', '--nodes='],
                ['on', f'--cgroup={"/x" * 200}']):
        result = subprocess.run([CTL, '--socket', broker.socket, 'gate', *bad], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode in (USAGE, FAILED) and result.stderr and not result.stdout, bad, result)


def test_failures_leave_nothing():
    """A gate that cannot be closed leaves nothing behind."""
    with Broker('unable') as broker:
        # The limit on descriptors is too low to close the gate.
        result = subprocess.run([CTL, '--socket', broker.socket, 'gate', 'on', f"--cgroup={cgroup('unable')}"],
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode == FAILED and result.stderr.count('\n') == 1, result)
        expect(not os.path.exists(broker.gate), 'the folder is left')


def test_paths():
    """A cgroup is the same however its path is written; other paths are rejected."""
    with Broker('paths') as broker:
        at = cgroup('paths')
        ctl(broker, 'gate', 'on', f'--cgroup=/{relative(TOP)}//./paths/../paths/')
        expect(broker.gates()[0]['cgroup'] == relative(at), broker.gates())
        broker.off(f'--cgroup={at}')
        expect(broker.gates() == [], broker.gates())
        for path in ('/..', f'{relative(at)}/cgroup.procs', f'{relative(at)}/nothing'):
            result = subprocess.run([CTL, '--socket', broker.socket, 'gate', 'on', f'--cgroup={path}'],
                                    stderr=subprocess.PIPE, text=True, check=False)
            expect(result.returncode == FAILED and 'Success' not in result.stderr
                   and result.stderr.count('\n') == 1, result)


def test_gate_lock_times_out():
    """A process that opens a gate waits for one that is closing it, and gives up after a limit."""
    with Broker('locked') as broker:
        at = cgroup('locked')
        broker.on(at)
        other = os.open(broker.gate, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        result = subprocess.run([CTL, '--socket', broker.socket, 'gate', 'off'], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode == FAILED and 'busy' in result.stderr, result)
        expect(opens(at) == CLOSED, 'it is closed as before')
        os.close(other)
        broker.off()
        expect(opens(at) == PASSED, 'opened')


def test_interrupted():
    """Several processes change gates at once and are killed in between: the next one succeeds."""
    with Broker('interrupted') as broker:
        paths = [cgroup('interrupted', str(i)) for i in range(4)]
        for _ in range(40):
            words = random.choice((['on', f'--cgroup={random.choice(paths)}'], ['off'],
                                   ['off', f'--cgroup={random.choice(paths)}']))
            processes = [start([CTL, '--socket', broker.socket, 'gate', *words], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL) for _ in range(2)]
            time.sleep(random.random() * 0.03)
            for process in processes:
                process.kill()
                process.wait(LIMIT)
        broker.on(*paths)
        expect([opens(at) for at in paths] == [CLOSED] * 4, 'closed after all')
        opener = Opener(paths[0], broker)
        expect(opener.opens() == PASSED, 'with a lease')
        opener.end()
        broker.off()
        expect([opens(at) for at in paths] == [PASSED] * 4, 'open after all')
        expect(not os.path.exists(broker.gate), 'the folder is left')

        # None of these processes is killed.
        processes = [start([CTL, '--socket', broker.socket, 'gate', 'on', f'--cgroup={at}'],
                           stdout=subprocess.DEVNULL) for at in paths for _ in range(2)]
        expect([process.wait(LIMIT) for process in processes] == [0] * 8, 'all at once')
        expect(sorted(gate['cgroup'] for gate in broker.gates()) == sorted(map(relative, paths)), broker.gates())
        with open('/proc/self/mounts', encoding='utf-8') as file:
            expect(file.read().count(broker.gate + ' ') == 1, 'mounted once')


def main():
    os.mkdir(TOP)
    skip_without_gate_support()
    names = sys.argv[5:]
    for name, test in list(globals().items()):
        if name.startswith('test_') and (not names or name in names):
            begin = time.monotonic()
            test()
            print(f'ok {name} ({time.monotonic() - begin:.1f} s)', flush=True)


main()
