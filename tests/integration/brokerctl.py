#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerctl beside a real broker.

    brokerctl.py BROKERCTL BROKERD STATS_CLIENT

The test parses the output, compares exit statuses with the manual, and checks that brokerctl ends
properly if the broker ends or the reader closes its end.
"""
import errno
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

from ctlrig import (CTL, FAILED, LIMIT, NAME, NO_BROKER, NOT_PERMITTED, OK, REASONS, USAGE, Broker,
                    Client, checks, complaint, ctl, expect, objects, of_type, start, wait_for)
from fakebroker import HELLO, FakeBroker


def check_stats(broker, client):
    client.run(100, 10)
    found = objects(ctl(broker, 'stats', '--json'))
    expect([entry['type'] for entry in found][:2] == ['broker', 'device'], found)
    about, = of_type(found, 'broker')
    expect(about['pid'] == broker.process.pid and about['sessions'] == 2, about)
    expect(about['force_cpu'] is False and about['completed'] == 110, about)
    expect(abs(about['updated_ns'] / 1e9 - time.time()) < LIMIT, about)
    devices = of_type(found, 'device')
    expect([device['device'] for device in devices] == list(range(len(devices))), devices)
    expect(devices[0]['kind'] == 'cpu' and set(devices[0]['reasons']) == REASONS, devices)
    expect(sum(device['tasks'] for device in devices) == 110, devices)
    tenant, = of_type(found, 'tenant')
    expect(tenant['tenant'] == 'default' and tenant['tasks'] == 110, tenant)
    expect(sum(tenant['reasons'].values()) == 110 and tenant['errors'] == 0, tenant)
    expect(sum(device['tasks'] for device in tenant['devices']) == 110, tenant)
    expect(0 < tenant['latency']['p50'] <= tenant['latency']['p99'], tenant)
    plans = {plan['plan']: plan for plan in of_type(found, 'plan')}
    expect(set(plans) == {NAME, 'large'}, plans)
    expect(plans[NAME]['tasks'] == 100 and plans['large']['tasks'] == 10, plans)
    expect(plans['large']['state'] == 'live' and plans['large']['last_reason'] in REASONS, plans)
    expect(re.fullmatch('[0-9a-f]{16}', plans['large']['fingerprint']), plans)
    expect(plans['large']['devices'][0]['memory'] == 'resident', plans)
    for device in plans['large']['devices']:
        # Predicted now is learned times contention; and trust goes with the error.
        now_ns = device['estimate_ns'] * device['contention']
        expect(device['contention'] >= 1 and abs(device['now_ns'] - now_ns) <= now_ns * 1e-3, device)
        expect(0 <= device['window_error'] <= 1, device)
        expect(not device['trusted'] or device['window_error'] <= 0.5, device)

    text = ctl(broker, 'stats')
    expect(NAME in text and 'default' in text and 'force-cpu is off' in text, text)
    expect(objects(ctl(broker, 'stats', '--json', '--tenant=default')), 'no tenant')
    ctl(broker, 'stats', '--tenant=nobody', status=FAILED)


def check_decisions(broker, client):
    found = objects(ctl(broker, 'decisions', '--json', '--last=1000000'))
    expect(all(entry['type'] == 'decision' for entry in found), found)
    large = [entry for entry in found if entry['plan'] == 'large']
    expect([entry['user_data'] for entry in large] == list(range(101, 111)), large)
    for entry in large:
        expect(entry['reason'] in REASONS and entry['device'] in range(16), entry)
        expect(entry['exec_ns'] > 0 and entry['queue_ns'] >= 0 and entry['res'] == 0, entry)
        expect(entry['count'] == 256 and entry['tenant'] == 'default', entry)
        expect(entry['predicted_ns'] >= 0 and entry['other_ns'] >= 0, entry)
        expect(abs(entry['time_ns'] / 1e9 - time.time()) < 3600, entry)
    expect([entry['time_ns'] for entry in found] == sorted(entry['time_ns'] for entry in found),
           'not in order')
    expect(any(entry['plan'] == NAME for entry in found), found)
    expect(any('inline' in entry['flags'] for entry in found), found)
    last = objects(ctl(broker, 'decisions', '--json', '--last', '3'))
    expect([entry['user_data'] for entry in last] == [108, 109, 110], last)
    expect(len(ctl(broker, 'decisions').splitlines()) <= 20, 'more than the last 20')
    expect('large' in ctl(broker, 'decisions', '--last=1'), 'no name')
    expect(ctl(broker, 'decisions', '--last=0') == '', 'something')
    for bad in ('-1', '', 'x', '1x', '99999999999999999999'):
        ctl(broker, 'decisions', '--last=' + bad, status=USAGE)


def follow(broker, *arguments):
    return subprocess.Popen([CTL, '--socket', broker.socket, 'decisions', '--follow', '--json',
                             *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_follow(broker, client):
    process = follow(broker, '--last=1')
    first = json.loads(process.stdout.readline())
    client.run(0, 5)
    seen = [json.loads(process.stdout.readline()) for _ in range(5)]
    expect([entry['user_data'] for entry in seen] ==
           list(range(first['user_data'] + 1, first['user_data'] + 6)), first, seen)
    # A reader that closes its end is not a failure.
    process.stdout.close()
    client.run(0, 1)
    expect(process.wait(LIMIT) == OK, process.stderr.read())
    expect(process.stderr.read() == '', 'it complained')
    process.stderr.close()
    ended = subprocess.run(f"'{CTL}' --socket '{broker.socket}' stats --json | head -n 1",
                           shell=True, stdout=subprocess.PIPE, timeout=LIMIT, check=True)
    expect(json.loads(ended.stdout)['type'] == 'broker', ended)


def check_changes(broker, client):
    expect(ctl(broker, 'force-cpu', 'status') == 'off\n', 'not off')
    expect(ctl(broker, 'force-cpu', 'on') == 'on\n', 'not on')
    about, = of_type(objects(ctl(broker, 'stats', '--json')), 'broker')
    expect(about['force_cpu'] is True, about)
    client.run(0, 2)
    last = objects(ctl(broker, 'decisions', '--json', '--last=2'))
    expect([entry['device'] for entry in last] == [0, 0], last)
    expect(ctl(broker, 'force-cpu', 'off') == 'off\n', 'not off')
    expect(ctl(broker, 'force-cpu', 'status') == 'off\n', 'not off')

    ctl(broker, 'reset-stats')
    found = objects(ctl(broker, 'stats', '--json'))
    expect(of_type(found, 'tenant')[0]['tasks'] == 0, found)
    expect({plan['tasks'] for plan in of_type(found, 'plan')} == {0}, found)
    expect(ctl(broker, 'decisions', '--json') == '', 'decisions from before')
    client.run(0, 3)
    ctl(broker, 'reset-stats', '--all')
    found = objects(ctl(broker, 'stats', '--json'))
    expect({device['tasks'] for device in of_type(found, 'device')} == {0}, found)
    expect(of_type(found, 'broker')[0]['resets'] == 1, found)
    ctl(broker, 'reset-stats', '--tenant=default')


def check_statuses(broker):
    for arguments in ([], ['nonsense'], ['stats', '--nonsense'], ['stats', 'x'], ['decisions', 'x'],
                      ['reset-stats', 'x'], ['reset-stats', '--all', '--tenant=a'], ['force-cpu'],
                      ['force-cpu', 'maybe'], ['force-cpu', 'on', 'off'], ['--nonsense']):
        ctl(broker, *arguments, status=USAGE)
    expect('reset-stats' in ctl(broker, '--help'), 'no help')
    expect(re.fullmatch(r'brokerctl [0-9.]+\n', ctl(broker, '--version')), 'no version')
    if os.path.exists('/dev/full'):
        with open('/dev/full', 'wb') as full:
            ctl(broker, 'stats', status=FAILED, stdout=full)
    if os.geteuid() == 0:
        os.chmod(os.path.dirname(broker.socket), 0o755)
        os.chmod(broker.socket, 0o777)
        other = {'user': 65534, 'group': 65534, 'extra_groups': []}
        ctl(broker, 'reset-stats', '--all', status=NOT_PERMITTED, **other)
        ctl(broker, 'force-cpu', 'on', status=NOT_PERMITTED, **other)
        expect(ctl(broker, 'force-cpu', 'status', **other) == 'off\n', 'not off')
        found = objects(ctl(broker, 'stats', '--json', **other))
        expect({entry['type'] for entry in found} == {'tenant', 'plan'}, found)
        ctl(broker, 'stats', '--tenant=elsewhere', status=NOT_PERMITTED, **other)
        os.chmod(broker.socket, 0o700)
        ctl(broker, 'stats', status=NOT_PERMITTED, **other)


def check_neighbours(folder, broker):
    """Two brokers in one folder are not mistaken for each other."""
    other = Broker(folder, name='other.sock')
    expect(ctl(other, 'force-cpu', 'on') == 'on\n', 'not on')
    expect(ctl(broker, 'force-cpu', 'status') == 'off\n', 'the wrong broker')
    for one in (broker, other):
        about, = of_type(objects(ctl(one, 'status', '--json')), 'status')
        expect(about['pid'] == one.process.pid, about)
    other.stop()
    ctl(other, 'force-cpu', 'status', status=NO_BROKER)


def answer(request, layout, *values):
    """Return a struct rbk_wire_reply, followed by the values."""
    kind, cookie = struct.unpack_from('<II', request)
    return struct.pack('<IIiI512s' + layout, kind, cookie, 0, 0, b'', *values)


def check_opposite_orders(folder):
    """A drain that waits for a device learns that another administrator has ended it."""
    features = 1 << 6 | 1 << 8 | 1 << 9  # statistics; an administrator, who may change something
    path = os.path.join(folder, 'played')
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as played:
        played.bind(path)
        played.listen()
        with subprocess.Popen([CTL, '--admin-socket', path, 'drain', 'device', '1', '--wait=60'],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            connection, _ = played.accept()
            with connection:
                connection.send(answer(connection.recv(4096), 'HHIQIIIIQQII64s', 1, 3, 2, features,
                                       16, 1, 1, 1, 0, 0, 0, 0, b'a test'))
                for tasks, is_drained in ((5, 1), (5, 1), (5, 0)):
                    connection.send(answer(connection.recv(4096), 'QQII', tasks, 0, is_drained, 0))
                said, error = waiting.communicate(timeout=LIMIT)
        expect(waiting.returncode == FAILED and said == '' and 'another administrator' in error,
               waiting.returncode, said, error)


def check_restart(folder):
    """What brokerctl restart says: figures, JSON, and why a broker was not restarted."""
    policy = os.path.join(folder, 'restarted.conf')
    with open(policy, 'w', encoding='utf-8') as file:
        file.write('')
    broker = Broker(folder, '--gpu=none', '--contention=none', '--calibration=none', '--config', policy, name='restarted')
    said = ctl(broker, 'restart')
    expect(re.fullmatch(r'drained 0 tasks in \S+ \S+; 0 tasks were left to the next broker\n'
                        r'restarted: no task was admitted for \S+ \S+\n', said), said)
    figures = json.loads(ctl(broker, 'restart', '--drain=0.5', '--json'))
    expect(figures['type'] == 'restart' and figures['drained'] == figures['left'] == figures['sessions'] == 0,
           figures)
    expect(0 <= figures['drain_ns'] < figures['gap_ns'] and figures['sessions_back'] == 0, figures)
    with open(policy, 'w', encoding='utf-8') as file:
        file.write('[broker]\nwindow = many\n')
    said = complaint(broker, 'restart', status=FAILED)
    expect(f"{policy}:2: window: 'many' is not allowed" in said and said.count('\n') == 1, said)
    for wrong in ('--drain=-1', '--drain=x', '--drain=3601'):
        expect('--drain takes 0 to 3600 seconds, not ' in complaint(broker, 'restart', wrong, status=USAGE), wrong)
    broker.stop()
    expect(broker.process.returncode == 0, broker.process.returncode)
    ctl(broker, 'restart', status=NO_BROKER)


def check_drain_of_restart(folder):
    """The drain of a restart is shown. Interrupted, the restart is cancelled, which the command says."""
    broker = Broker(folder, '--gpu=none', '--calibration=none', '--test-device=1000', name='drained')
    client = Client(broker)
    client.leave(60)
    status = status_of(broker)
    expect(status['restarting'] is False and status['restart_until_ns'] is None, status)
    expect('\nrestart ' not in ctl(broker, 'status'), 'no restart')
    process = start([CTL, '--socket', broker.socket, 'restart', '--drain=1000'], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
    status = wait_for(lambda: (found := status_of(broker))['restarting'] and found, 'no restart')
    expect(1 <= status['in_flight'] <= 60, status)
    expect(abs(status['restart_until_ns'] / 1e9 - time.time() - 1000) < LIMIT, status)
    expect(re.search(r'^restart  in progress: nothing new is admitted, \d+ tasks are left, for [\d.]+ s at most$',
                     ctl(broker, 'status'), re.MULTILINE), ctl(broker, 'status'))
    expect('restarting or stopping already' in complaint(broker, 'restart', status=FAILED), 'a second restart')
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=LIMIT)
    expect(process.returncode == FAILED and not shown
           and said == 'brokerctl: the restart is cancelled: the same broker goes on\n', process.returncode, shown, said)
    status = wait_for(lambda: not (found := status_of(broker))['restarting'] and found, 'it goes on')
    expect(status['restart_until_ns'] is None and status['pid'] == broker.process.pid, status)
    with open(broker.log_path, encoding='utf-8') as log:
        said = log.read()
    # First the check, then the drain, then the end.
    expect(re.search(r'checking whether the next broker would start: uid \d+ \(pid \d+\) asked.*'
                     r'restarting within 1000 s: \d+ tasks are in flight.*cannot restart: the administrator who asked',
                     said, re.DOTALL), said)
    client.process.kill()
    broker.stop(signal.SIGKILL)


def check_sandbox(folder, broker):
    """What becomes of system calls is shown; a warning tells where threads may make all of them."""
    for mode in ('on', 'log', 'off'):
        if mode != 'on':
            broker = Broker(folder, '--gpu=none', '--calibration=none', f'--sandbox={mode}', name=mode)
        status = status_of(broker)
        # A build with a sanitizer has no filters, and a container may lack them.
        expect(status['sandbox'] == mode or mode != 'off' and status['sandbox'] in ('lacking', 'not-built'), status)
        expect(status['refused_calls'] == 0, status)
        expect(bool([text for text in status['warnings'] if 'the sandbox is' in text])
               == (status['sandbox'] in ('log', 'off')), status)
        expect(re.search('^sandbox  ', ctl(broker, 'status'), re.MULTILINE), 'no line')
        found, = [entry for entry in checks(broker) if entry['check'] == 'sandbox']
        health = {'on': 'ok', 'log': 'warn', 'off': 'warn', 'lacking': 'warn', 'not-built': 'skip'}
        expect(found['health'] == health[status['sandbox']], found, status)
        with open(broker.log_path, encoding='utf-8') as log:
            expect(('the sandbox is' in log.read()) == (status['sandbox'] in ('log', 'off')), mode)
        if mode != 'on':
            broker.stop()


# Requests that only administrators may make.
ADMINISTRATORS = (['set', 'default', 'weight=3'], ['set', 'default'], ['evict', '--all'], ['evict', 'default'],
                  ['drain', 'device', '1'], ['drain', 'tenant', 'default', '--status'],
                  ['drain', 'tenant', 'default', '--end'], ['restart'], ['force-cpu', 'on'], ['log-level'],
                  ['log-level', 'debug'], ['lease', '1', '--vram=1MiB'], ['reset-stats', '--all'],
                  ['reset-stats', '--tenant=elsewhere'], ['stats', '--tenant=elsewhere'])
NOBODY = {'user': 65534, 'group': 65534, 'extra_groups': []}


def expect_not_permitted(broker, cause, remedy, **options):
    """Every request of administrators is refused for the same reason, which check reports, too."""
    for arguments in ADMINISTRATORS:
        said = complaint(broker, *arguments, status=NOT_PERMITTED, **options)
        expect(f'{cause}; {remedy}' in said and 'this function' not in said and said.count('\n') == 1,
               arguments, said)
    found, = [entry for entry in checks(broker, **options) if entry['check'] == 'administrators']
    expect(found['health'] == 'warn' and found['text'] == cause, found)
    expect('brokerd --socket' not in found['mend'] and 'systemctl start' not in found['mend'], found)
    # Other requests are served.
    ctl(broker, 'stats', **options)
    ctl(broker, 'reset-stats', **options)
    return found['mend']


def check_no_administrators(folder):
    """Without an administrators' socket, or without permission for it, brokerctl names the reason."""
    broker = Broker(folder, '--admin-socket=none', '--gpu=none', '--calibration=none', name='without')
    path = os.path.join(folder, 'without.admin')
    remedy = "name the path of the broker's"
    for cause in (f"no administrators' socket is at {path}",
                  f"no program listens at the administrators' socket ({path})"):
        mend = expect_not_permitted(broker, cause, remedy)
        expect(mend.startswith(remedy), mend)
        if not os.path.exists(path):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
                left.bind(path)
    broker.stop()
    # A path that no broker can have proves no broker.
    command = [CTL, '--socket=/etc/passwd/x', f'--admin-socket={folder}/absent', 'check']
    said = subprocess.run(command, timeout=LIMIT, check=False, stdout=subprocess.PIPE).stdout.decode()
    expect(remedy not in said, said)
    if os.geteuid() != 0:
        print('brokerctl.py: needs root to become another user')
        return
    for options, who in (((), 'the user that brokerd runs as'),
                         (('--admin-group=65533',), 'members of group 65533'),
                         (('--admin-users=65533',), "this broker's administrators")):
        broker = Broker(folder, '--socket-mode=0666', '--gpu=none', '--calibration=none', *options, name='others')
        path = os.path.join(folder, 'others.admin')
        mend = expect_not_permitted(broker, f"only root and {who} may use the administrators' socket ({path})",
                                    'admin-group of brokerd.conf(5) lets others look', **NOBODY)
        expect(mend, 'no remedy')
        broker.stop()


def expect_mended(broker, text, mend):
    """The check of a broker that refuses the session reports its sentence, and starts no broker."""
    found = {entry['check']: entry for entry in checks(broker)}
    expect(found['socket']['health'] == 'fail' and text in found['socket']['text'], found['socket'])
    expect(mend in found['socket']['mend'], found['socket'])
    # Not by ctl(): the broker's sentence has "1 sessions".
    plain = subprocess.run([CTL, '--socket', broker.socket, 'check'], stdout=subprocess.PIPE, text=True,
                           timeout=LIMIT, check=False).stdout
    expect(text in plain and mend in plain, plain)
    for remedy in (*(entry['mend'] for entry in found.values()), plain):
        expect('brokerd --socket' not in remedy and 'systemctl start' not in remedy, remedy)


def check_refused(folder):
    path = os.path.join(folder, 'narrow.conf')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(f'[tenant narrow]\nmatch-uid = {os.geteuid()}\nsessions-max = 1\n')
    broker = Broker(folder, '--config', path, '--gpu=none', '--calibration=none', name='narrow')
    client = Client(broker)
    client.run(1, 1)
    expect_mended(broker, '(sessions-max)', 'raise the limit that the sentence names')
    client.stop()
    broker.stop()
    for answer_of_hello, text, mend in (
            (-errno.EDQUOT, 'fake', 'raise the limit that the sentence names'),
            (-errno.EMFILE, 'fake', 'LimitNOFILE='),
            (-errno.EAGAIN, 'fake', 'check again'),
            (-errno.EPROTONOSUPPORT, 'fake', 'of one version'),
            (b'', 'bytes instead of', 'of one version'),
            (-errno.ENOMEM, 'fake', 'remove the cause')):
        with FakeBroker(folder, {HELLO: answer_of_hello}) as fake:
            fake.socket = fake.path
            expect_mended(fake, text, mend)
            os.unlink(fake.path)


def check_streams(broker):
    """Without standard output, nothing is printed into the connection to the broker."""
    def ended_hostile():
        about, = of_type(objects(ctl(broker, 'stats', '--json')), 'broker')
        return about['ended_hostile']

    before = ended_hostile()
    # The command prints at once, while it is connected.
    shell = f'{CTL} --socket {broker.socket} watch --interval=0.1 tenants'
    for closed in ('>&-', '<&- >&-', '<&- >&- 2>&-'):
        done = subprocess.run(f'{shell} {closed}', shell=True, stderr=subprocess.PIPE, timeout=LIMIT,
                              check=False)
        expect(done.returncode == FAILED, closed, done)
        expect(('2>' in closed) == (done.stderr == b''), closed, done)
    expect(ended_hostile() == before, 'it sent what it should have printed')
    # An output file is written even if standard output is closed.
    trace = os.path.join(os.path.dirname(broker.socket), 'trace.json')
    # A longer older file is replaced completely.
    with open(trace, 'w', encoding='utf-8') as file:
        file.write('x' * 10000000)
    subprocess.run(f'{CTL} --socket {broker.socket} trace --output={trace} <&- >&-', shell=True,
                   timeout=LIMIT, check=True)
    with open(trace, encoding='utf-8') as file:
        json.load(file)


def check_trace_kept(folder, broker):
    """If no trace can be taken, an older trace file is kept, and no empty file is left."""
    old, new = os.path.join(folder, 'old.json'), os.path.join(folder, 'new.json')
    with open(old, 'w', encoding='utf-8') as file:
        file.write('an older one')
    for path in (old, new):
        ctl(broker, 'trace', '--output=' + path, status=NO_BROKER)
    with open(old, encoding='utf-8') as file:
        expect(file.read() == 'an older one', 'the older trace is gone')
    expect(not os.path.exists(new), 'a trace of nothing')
    # /dev/null cannot be truncated.
    ctl(broker, 'trace', '--output=/dev/null', status=NO_BROKER)
    expect(os.path.exists('/dev/null'), '/dev/null')


def status_of(broker):
    status, = objects(ctl(broker, 'status', '--json'))
    return status


def check_turns(broker):
    """With a budget of a microsecond nearly every turn is an overrun: the broker reports the causes."""
    wait_for(lambda: sum(status_of(broker)['turn_overruns'].values()) > 0, 'no overrun is told of')
    status = status_of(broker)
    expect(status['longest_turn_ns'] >= 10000, status)
    expect(status['longest_turn_cause'] in status['turn_overruns'], status)
    text = ctl(broker, 'status')
    expect(re.search(r'^reactor  longest turn .*; \d+ overruns?: [a-z ]+ \d+', text, re.MULTILINE), text)


def check_setup(broker, clients):
    """Waits of clients are reported: their number, duration, cause and tenant."""
    setup = status_of(broker)['setup']
    expect(setup['slices']['verify']['slices'] >= 2 * clients, setup)
    expect(setup['slices']['map']['slices'] >= clients, setup)
    expect(setup['slices']['ring']['slices'] >= clients, setup)
    for entry in setup['slices'].values():
        expect(entry['longest_ns'] <= entry['total_ns'], setup)
    expect(setup['longest_wait']['ns'] > 0 and setup['longest_slice']['ns'] > 0, setup)
    for entry in (setup['longest_wait'], setup['longest_slice']):
        expect(entry['cause'] in setup['slices'] and entry['tenant'] == 'default', setup)
    text = ctl(broker, 'status')
    expect(re.search(r'^setup    \d+ jobs? waits?, longest wait .*: .*, tenant default; longest slice .*: .*, '
                     r'tenant default$', text, re.MULTILINE), text)
    ctl(broker, 'reset-stats', '--all')
    wait_for(lambda: status_of(broker)['setup']['slices']['ring']['slices'] == 0, 'it was not reset')


def check_host_memory(folder, broker, client):
    """The memory that all tenants hold is reported with its maximum, and with a warning close to it."""
    used = status_of(broker)['host_bytes']
    client.stop()
    bounded = Broker(folder, '--gpu=none', '--calibration=none', f'--host-max={used + used // 50}', name='bounded')
    client = Client(bounded)
    client.run(1, 1)
    status = status_of(bounded)
    expect(status['host_max_bytes'] == used + used // 50, status)
    expect(0 < status['host_bytes'] <= status['host_max_bytes'], status)
    expect([text for text in status['warnings'] if '--host-max' in text], status)
    text = ctl(bounded, 'status')
    expect(re.search(r'^host     .* charged, of ', text, re.MULTILINE), text)
    about, = of_type(objects(ctl(bounded, 'stats', '--json')), 'broker')
    expect(about['host_max_bytes'] == status['host_max_bytes'], about)
    client.stop()
    bounded.stop()


def check_upkeep(folder):
    broker = Broker(folder, '--gpu=none', '--calibration=none', '--turn-budget=1', name='upkeep')
    ctl(broker, 'reset-stats', '--all')
    clients = [Client(broker, name=f'client-{i}') for i in range(4)]
    for client in clients:
        client.run(1, 1)
    check_turns(broker)
    check_setup(broker, len(clients))
    status = status_of(broker)
    expect(status['closing']['stuck'] == 0 < status['closing']['threads'], status)
    expect([entry['stalls'] for entry in status['stalls']] == [0] * status['devices'], status)
    expect(not [text for text in status['warnings'] if '--host-max' in text], status)
    for client in clients[1:]:
        client.stop()
    wait_for(lambda: status_of(broker)['sessions'] == 2, 'clients stay')
    check_host_memory(folder, broker, clients[0])
    broker.stop()


def main():
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder)
        client = Client(broker)
        check_stats(broker, client)
        check_decisions(broker, client)
        check_follow(broker, client)
        check_changes(broker, client)
        check_neighbours(folder, broker)
        check_statuses(broker)
        check_no_administrators(folder)
        check_refused(folder)
        check_streams(broker)
        check_opposite_orders(folder)
        check_upkeep(folder)
        check_restart(folder)
        check_drain_of_restart(folder)
        check_sandbox(folder, broker)

        # The broker dies while brokerctl follows its decisions.
        client.run(0, 1)
        process = follow(broker, '--last=1')
        expect(json.loads(process.stdout.readline())['type'] == 'decision', 'no decision')
        broker.stop(signal.SIGKILL)
        _, complaint = process.communicate(timeout=LIMIT)
        expect(process.returncode == NO_BROKER and 'gone' in complaint, process.returncode,
               complaint)
        for command in (['stats'], ['decisions'], ['reset-stats'], ['force-cpu', 'status']):
            ctl(broker, *command, status=NO_BROKER)
        check_trace_kept(folder, broker)
        client.stop()
    print('brokerctl: well')


if __name__ == '__main__':
    main()
