#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerctl beside a broker with several tenants.

    brokerctl-tenants.py BROKERCTL BROKERD STATS_CLIENT LIBRARY_FOLDER BROKERCTL.1

Every listing is parsed and compared with the members that the manual lists. Spans of a time line do not
overlap. Slow tasks are explained, to tenants too. A stopped broker is distinguished from an absent one.
Names that clients choose are escaped for the terminal.
"""
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from ctlrig import (CLIENT, CTL, FAILED, LIMIT, NO_BROKER, OK, REASONS, USAGE, Broker, Client, checks,
                    complaint, ctl, expect, objects, of_type, wait_for)

LIBRARY, PAGE = sys.argv[4:6]
HELD = 5
TENANTS = ('alpha', 'beta', 'gamma')
LISTINGS = (['status'], ['devices'], ['tenants'], ['sessions'], ['plans'], ['reasons'], ['stats'],
            ['decisions'], ['contention'], ['check'])


def start(folder):
    """Start a broker that identifies tenants by copies of the client, and one client of each tenant."""
    policy = ''
    for name in TENANTS:
        shutil.copy(CLIENT, os.path.join(folder, name))
        policy += f'[tenant {name}]\nmatch-exe = {folder}/{name}\nweight = {100 + len(name)}\n'
    with open(os.path.join(folder, 'conf'), 'w', encoding='utf-8') as file:
        file.write(policy)
    broker = Broker(folder, '--config', os.path.join(folder, 'conf'), '--gpu=software',
                    '--calibration=none', '--contention=auto')
    environment = dict(os.environ, LD_LIBRARY_PATH=LIBRARY)
    clients = {name: Client(broker, f'small-{name}', os.path.join(folder, name), env=environment)
               for name in TENANTS}
    for client in clients.values():
        client.run(70, 6)
    return broker, clients


# ---- What the manual says

def documented():
    """Return the members of each type of object that the manual lists."""
    with open(PAGE, encoding='utf-8') as file:
        text = file.read()
    text = text[text.index('.Sh JSON'):text.index('.Sh EXIT STATUS')]
    members = {}
    for part in re.split(r'^\.It Dq ', text, flags=re.MULTILINE)[1:]:
        kind = part.split('\n', 1)[0]
        found = set()
        for line in re.findall(r'^\.(?:Va|Pq (?:each )?Va) (.*)$', part, re.MULTILINE):
            found |= set(re.findall(r'[A-Za-z][A-Za-z0-9_]*', line))
        members[kind] = found
    return members


def members_of(value):
    """Return the names of all members, except for counts by reason."""
    found = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            found.add(name)
            if name != 'reasons':
                found |= members_of(inner)
    elif isinstance(value, list):
        for inner in value:
            found |= members_of(inner)
    return found


def check_documented(broker, alpha):
    known, seen = documented(), {}
    # So that an answer has all members.
    alpha.refuse(1)
    listings = [[*listing, '--json'] for listing in LISTINGS if listing[0] not in ('check', 'contention')]
    for listing in listings + [['why', 'tenant', 'alpha', '--json']]:
        for entry in objects(ctl(broker, *listing)):
            seen.setdefault(entry['type'], set()).update(members_of(entry) - {'type'})
    for entry in objects(ctl(broker, 'devices', '--capabilities', '--json')):
        seen.setdefault(entry['type'], set()).update(members_of(entry) - {'type'})
    for entry in checks(broker):
        seen.setdefault(entry['type'], set()).update(members_of(entry) - {'type'})
    expect(set(seen) >= {'status', 'broker', 'device', 'tenant', 'session', 'plan', 'reason', 'decision',
                         'operator', 'made-operator', 'need', 'why', 'check'}, seen.keys())
    for kind, members in seen.items():
        expect(members <= known[kind], kind, 'has undocumented', members - known[kind])
        expect(known[kind] <= members, kind, 'has not', known[kind] - members)


# ---- Listings

def check_listings(broker):
    # Repeat, because another session may just have released the root page: no figure may then read as zero by
    # mistake.
    for _ in range(3):
        status, = objects(ctl(broker, 'status', '--json'))
        expect(status['sessions'] >= 3 and status['completed'] >= 3 * 76, status)
    expect(status['whole'] and status['pid'] == broker.process.pid, status)
    expect(set(status['reasons']) == REASONS and sum(status['reasons'].values()) >= 3 * 76, status)
    expect('software' in ctl(broker, 'devices', '--no-header'), 'no devices')

    tenants = objects(ctl(broker, 'tenants', '--json'))
    expect({tenant['tenant'] for tenant in tenants} >= set(TENANTS), tenants)
    names = [entry['tenant'] for entry in objects(ctl(broker, 'tenants', '--json', '--sort=name'))]
    expect(names == sorted(names), names)
    names.reverse()
    expect([entry['tenant'] for entry in objects(ctl(broker, 'tenants', '--json', '--sort=-name'))]
           == names, names)
    counts = [entry['tasks'] for entry in objects(ctl(broker, 'tenants', '--json', '--sort=tasks'))]
    expect(counts == sorted(counts, reverse=True), counts)
    beta, = objects(ctl(broker, 'tenants', '--json', '--tenant=beta'))
    expect(beta['tenant'] == 'beta' and beta['weight'] == 104 and beta['named'], beta)

    sessions = [entry for entry in objects(ctl(broker, 'sessions', '--json')) if entry['tenant']]
    expect({entry['tenant'] for entry in sessions} == set(TENANTS), sessions)
    for entry in sessions:
        expect(entry['tasks'] == 76 and entry['plans'] == 2 and entry['arenas'] == 1, entry)
        expect(entry['comm'] == entry['tenant'] and not entry['admin'], entry)
    one, = objects(ctl(broker, 'sessions', '--json', '--tenant=gamma'))
    expect(one['tenant'] == 'gamma', one)

    plans = objects(ctl(broker, 'plans', '--json', '--sort=tasks'))
    expect(len(plans) == 6 and [plan['tasks'] for plan in plans] == [70] * 3 + [6] * 3, plans)
    expect(len(objects(ctl(broker, 'plans', '--json', '--tenant=alpha'))) == 2, 'not two plans')
    reasons = objects(ctl(broker, 'reasons', '--json'))
    expect({entry['reason'] for entry in reasons} == REASONS, reasons)
    expect(sum(entry['tasks'] for entry in reasons) == 3 * 76, reasons)
    expect(abs(sum(entry['share'] for entry in reasons) - 1) < 1e-6, reasons)

    rows = ctl(broker, 'tenants', '--no-header').splitlines()
    expect(len(rows) == len(tenants) and 'TENANT' not in rows[0], rows)
    for listing in LISTINGS:
        text = ctl(broker, *listing) if listing != ['check'] else ''
        expect(not re.search('[\0-\b\v-\x1f\x7f]', text), listing, repr(text))
    operators = of_type(objects(ctl(broker, 'devices', '--capabilities', '--json')), 'operator')
    matmul, = [entry for entry in operators if entry['operator'] == 'MatMul']
    expect(all('float32' in device['types'] for device in matmul['devices']), matmul)
    text = ctl(broker, 'devices', '--capabilities')
    gather, = [line.split() for line in text.splitlines() if line.split()[:1] == ['Gather']]
    expect(gather[2].split(',')[-1] == 'bfloat16', 'cut off:', gather)
    needs = of_type(objects(ctl(broker, 'devices', '--capabilities', '--json')), 'need')
    for name in {name for device in matmul['devices'] for name in device['types']}:
        for backend in ('CPU', 'Vulkan'):
            need, = [entry for entry in needs if entry['backend'] == backend and name in entry['types']]
            expect(need['features'] and need['largest_dimension'] == 2**31 - 1, need)
    made = of_type(objects(ctl(broker, 'devices', '--capabilities', '--json')), 'made-operator')
    expect(not {entry['operator'] for entry in made} & {entry['operator'] for entry in operators}, made)
    upsample, = [entry for entry in made if entry['operator'] == 'Upsample']
    expect(upsample['until'] == 9, upsample)


def text_of_ns(ns):
    """Return how tables show a time: three digits, and a unit."""
    if not ns:
        return '-'
    for limit, unit in ((1e3, 'ns'), (1e6, 'us'), (1e9, 'ms')):
        if ns < limit:
            return f'{ns * 1e3 / limit:.3g} {unit}'
    return f'{ns / 1e9:.4g} s'


def check_plan_times(broker):
    """The listing of plans has the times, errors and trust of stats."""
    def learned():
        return {(plan['tenant'], plan['plan']): plan for plan in of_type(objects(ctl(broker, 'stats', '--json')), 'plan')}

    def table(sort):
        listing = ctl(broker, 'plans', f'--sort={sort}').splitlines()[1:]
        heads, *rows = [re.split(r' {2,}', line.strip()) for line in listing if line]
        return [dict(zip(heads, row, strict=True)) for row in rows]

    for sort in ('name', '-name', 'tasks', '-tasks'):
        # The factor of contention changes at any time.
        before, rows, after = learned(), table(sort), learned()
        while before != after:
            before, rows, after = after, table(sort), learned()
        expect_plan_times(rows, after)


def expect_plan_times(rows, after):
    """Each of @rows has the times, the error and the trust of its plan in @after."""
    expect(len(rows) == len(after) == 6, rows)
    for row in rows:
        plan = after[row['TENANT'], row['PLAN']]
        cpu, *gpus = plan['devices']
        last = plan['devices'][plan['last_device']]
        wanted = {
            'CPU NOW': text_of_ns(cpu['now_ns']),
            'CPU ALONE': text_of_ns(cpu['estimate_ns']),
            'GPU NOW': text_of_ns(min((gpu['now_ns'] for gpu in gpus if gpu['now_ns']), default=0)),
            'GPU ALONE': text_of_ns(min((gpu['estimate_ns'] for gpu in gpus if gpu['estimate_ns']), default=0)),
            'ERROR': f"{100 * last['window_error']:.1f}%",
            'TRUSTED': 'yes' if last['trusted'] else 'no',
        }
        expect({head: row.get(head) for head in wanted} == wanted, row, plan)
    expect(any(row['CPU ALONE'] != '-' for row in rows) and any(row['GPU ALONE'] != '-' for row in rows), rows)


def check_mistakes(broker):
    said = complaint(broker, 'set', 'alpha', 'weight=100', 'vram-max=x', status=FAILED)
    expect('1 of 2 limits were changed' in said, said)
    for arguments in (['help'], ['-h'], ['help', 'set']):
        found = subprocess.run([CTL, *arguments], timeout=LIMIT, check=True, stdout=subprocess.PIPE)
        expect(found.stdout.startswith(b'usage: brokerctl'), arguments, found)
    for arguments, meant in ((['tennants'], 'tenants'), (['statsu'], 'stat'), (['--sokcet=x', 'status'], '--socket'),
                             (['tenants', '--jsn'], '--json'), (['tenants', '--sort=weihgt'], 'weight'),
                             (['watch', 'devcies'], 'devices'), (['drain', 'alpha'], None),
                             (['--jsn', 'status'], '--json, after'), (['log-level', 'dbug'], 'debug'),
                             (['force-cpu', 'of'], 'off'), (['drain', 'tenent', 'alpha'], 'tenant'),
                             (['why', 'plna', 'x'], 'plan'), (['help', 'statsu'], 'stat'),
                             (['set', 'alpha', 'vram-mx=1GiB'], 'vram-max')):
        said = complaint(broker, *arguments)
        expect(f'did you mean {meant}' in said if meant else 'tenant alpha' in said, arguments, said)
    for said, wanted in ((complaint(broker, '--json', 'status'), '--json is an option of commands'),
                         (complaint(broker, 'status', '--timeout=1'), 'in front of the command'),
                         (complaint(broker, 'drain', 'tenant'), 'which tenant?'),
                         (complaint(broker, 'leases', '--sort=xyzzy'), 'there are lease tenant name '),
                         (complaint(broker, 'lease'), 'NUMBER is missing\nusage: brokerctl [OPTION...] lease [--json] ('),
                         (complaint(broker, 'lease', 'wake'), 'NUMBER is missing; see brokerctl leases'),
                         (complaint(broker, 'lease', 'sleep', '--vram=1GiB', '1'), 'without sleep or wake'),
                         (complaint(broker, 'lease', '1'), 'lease 1 would not change: give at least one of --priority, --share and --vram\n'),
                         (complaint(broker, 'lease', '1', '--priority=high'), 'is urgent, normal, background or none, not high\n'),
                         (complaint(broker, 'set', 'alhpa', 'weight=3', status=FAILED),
                          'no tenant alhpa; did you mean alpha?'),
                         (complaint(broker, 'sessions', '--tenant=nobody', status=FAILED),
                          'no tenant nobody; there are ')):
        expect(wanted in said, wanted, said)
    for arguments in (['status', 'x'], ['why'], ['why', 'nothing', 'x'], ['why', 'task', 'x', 'y'],
                      ['trace', '--seconds=-1'], ['trace', '--seconds=x'], ['trace', '--max-events=0'],
                      ['watch'], ['watch', 'trace'], ['watch', '--interval=0', 'status'],
                      ['watch', 'decisions', '--follow'], ['set'], ['set', 'alpha', 'weight'],
                      ['set', 'alpha', '=3'], ['evict'], ['evict', 'alpha', '--all'],
                      ['evict', '--all', '--device=99'], ['drain', 'device'], ['drain', 'device', 'x'],
                      ['drain', 'nothing', '1'], ['drain', 'device', '1', '--end', '--status'],
                      ['log-level', 'loud'], ['--timeout=0', 'status'], ['--timeout=x', 'status'],
                      ['tenants', '--json=yes'], ['tenants', '--sort']):
        complaint(broker, *arguments)
    # An argument is quoted in messages without its escape sequences.
    expect('\x1b' not in complaint(broker, 'st\x1b[2Jatus'), 'an escape sequence')
    for arguments in (['sessions', '--tenant=nobody'], ['why', 'plan', 'nothing'], ['why', 'lease', '1'], ['why', 'nothing'],
                      ['why', 'task', '987654321'], ['set', 'nobody', 'weight=3'],
                      ['drain', 'tenant', 'nobody'], ['evict', 'nobody'],
                      ['trace', '--output=/nonexistent/x']):
        complaint(broker, *arguments, status=FAILED)


def check_doctor(broker):
    found = {entry['check']: entry for entry in checks(broker)}
    for entry in found.values():
        expect(entry['health'] in ('ok', 'warn', 'fail', 'skip'), entry)
        expect(entry['text'] and entry['why'], entry)
        expect(bool(entry['mend']) == (entry['health'] in ('warn', 'fail')), entry)
    for name in ('socket', 'version', 'io-uring', 'open-files'):
        expect(found[name]['health'] in ('ok', 'warn'), found[name])
    # The check reports no device in use as missing, and repairs no service that does not run here.
    for device in of_type(objects(ctl(broker, 'devices', '--json')), 'device'):
        if device['kind'] == 'software-gpu':
            expect(found['vulkan']['health'] == 'ok' and device['name'][:40] in found['vulkan']['text'],
                   found['vulkan'])
            expect('--gpu=software' not in found['render-nodes']['mend'], found['render-nodes'])
            expect('host-import' not in device['paths'] or found['udmabuf']['health'] == 'ok',
                   found['udmabuf'])
    for entry in found.values():
        expect('systemctl' not in entry['mend'] or entry['check'] == 'device-gate', entry)


# ---- Names, for completions

def check_names(broker):
    def names(*arguments):
        return ctl(broker, 'names', *arguments).splitlines()

    expect(set(TENANTS) <= set(names('tenants')), names('tenants'))
    expect(names('devices')[0] == 'CPU', names('devices'))
    expect({f'small-{name}' for name in TENANTS} <= set(names('plans')), names('plans'))
    expect('small-alpha' in names('plans', '--tenant=alpha'), names('plans', '--tenant=alpha'))
    expect('small-beta' not in names('plans', '--tenant=alpha'), names('plans', '--tenant=alpha'))
    sessions = of_type(objects(ctl(broker, 'sessions', '--json')), 'session')
    for tenant in TENANTS:
        expect(names('sessions', f'--tenant={tenant}') ==
               [str(session['session']) for session in sessions if session['tenant'] == tenant], sessions)
    expect(names('leases') == [], names('leases'))
    complaint(broker, 'names', 'tenant', status=USAGE)
    complaint(broker, 'names', 'plans', '--tenant=nobody', status=FAILED)


# ---- Why

def why(broker, *arguments, **options):
    answer, = objects(ctl(broker, 'why', '--json', *arguments, **options))
    times = [cause['ns'] for cause in answer['causes']]
    expect(times == sorted(times, reverse=True) and all(time > 0 for time in times), answer)
    expect(abs(sum(times) - answer['total_ns']) < 1e-6 * answer['total_ns'] + 10, answer)
    expect(not times or abs(sum(cause['share'] for cause in answer['causes']) - 1) < 1e-5, answer)
    return answer


def check_why(broker):
    task = why(broker, 'task', '72', '--tenant=beta')
    expect(task['what'] == 'task' and task['user_data'] == 72 and task['tasks'] == 1, task)
    expect(task['plan'] == 'large' and task['tenant'] == 'beta', task)
    decision, = [entry for entry in objects(ctl(broker, 'decisions', '--json', '--tenant=beta',
                                                '--last=1000'))
                 if entry['user_data'] == 72]
    expect(abs(task['total_ns'] - decision['queue_ns'] - decision['exec_ns']) < 10, task, decision)
    expect(any(decision['reason'] in fact for fact in task['facts']), task)
    expect(why(broker, 'task', '#%d' % decision['index'], '--tenant=beta')['user_data'] == 72, task)
    plan = why(broker, 'plan', 'large', '--tenant=gamma')
    expect(plan['what'] == 'plan' and plan['tasks'] == 6 and plan['tenant'] == 'gamma', plan)
    tenant = why(broker, 'alpha')
    expect(tenant['what'] == 'tenant' and tenant['tasks'] >= 6, tenant)
    text = ctl(broker, 'why', 'large', '--tenant=gamma').splitlines()
    expect(text[0].startswith('plan large of tenant gamma: ') and 'of which' in text[0], text)


def check_why_refused(folder):
    """Invalid entries leave a trace: their number, fields and reasons, and few lines of the log."""
    broker = Broker(folder, '--gpu=none', '--calibration=none', '--contention=none', '--log-level=debug')
    client = Client(broker)
    client.run(1, 1)
    before = why(broker, 'tenant', 'default')
    expect(before['entries_refused'] == 0 and before['refused'] == [], before)
    client.refuse(1)
    tenant = why(broker, 'tenant', 'default')
    expect(tenant['entries_refused'] == 1, tenant)
    found, = tenant['refused']
    expect(found['user_data'] == 1000000 and found['res'] == -22 and found['field'] == 'refs[1]' and
           found['operation'] == 'RUN' and '"' not in found['field'] and
           'y is at offset 262148' in found['reason'] and 'multiple of 64' in found['reason'], found)
    expect(any('1 of its entries was invalid' in fact for fact in tenant['facts']) and
           any('user_data 1000000' in fact and 'refs[1]: ' in fact for fact in tenant['facts']), tenant['facts'])
    task = why(broker, 'task', '1000000')
    expect(task['user_data'] == 1000000 and task['refused'] == [found] and task['tasks'] == 0 and
           task['facts'] == ['refs[1]: ' + found['reason']], task)
    text = ctl(broker, 'why', 'task', '1000000').splitlines()
    expect('refused with -EINVAL' in text[0] and text[1].startswith('  - refs[1]: '), text)
    # The task of the same number was not refused.
    expect(why(broker, 'task', '1')['refused'] == [], 'task 1')
    session = why(broker, 'session', str(found['session']))
    expect(session['what'] == 'session' and session['session'] == found['session'] and
           session['refused'] == [found] and session['tasks'] == 2, session)
    complaint(broker, 'why', 'session', '4711', status=FAILED)
    expect(why(broker, 'plan', 'large')['refused'] == [], 'plan large')
    # A flood is counted, but neither noted nor logged one by one.
    client.refuse(3000)
    tenant = why(broker, 'tenant', 'default')
    expect(tenant['entries_refused'] == 3001 and len(tenant['refused']) == 5, tenant)
    client.stop()
    broker.stop()
    with open(broker.log_path, encoding='utf-8') as file:
        lines = [line for line in file if 'is refused with' in line]
    expect(1 <= len(lines) < 60 and 'user_data 1000000' in lines[0] and 'refs[1]: ' in lines[0] and
           'session %d' % found['session'] in lines[0], lines)


def check_why_of_tenant(folder):
    """A tenant's own user sees its own tenant only."""
    if os.geteuid() != 0:
        print('brokerctl-tenants.py: needs root to become another user')
        return
    os.chmod(folder, 0o755)
    broker = Broker(folder, '--gpu=none', '--socket-mode=0666', '--calibration=none')
    other = {'user': 65534, 'group': 65534, 'extra_groups': []}
    client = Client(broker, **other)
    client.run(1, 4)
    answer = why(broker, 'task', '3', **other)
    expect(answer['what'] == 'task' and answer['plan'] == 'large', answer)
    expect(why(broker, 'plan', 'large', **other)['tasks'] == 4, 'not four')
    status, = objects(ctl(broker, 'status', '--json', **other))
    expect(not status['whole'] and status['sessions'] is None, status)
    # A tenant does not see the work that others make the broker do.
    expect(status['longest_turn_ns'] is None and not any(status['turn_overruns'].values()), status)
    expect(status['host_bytes'] is None and status['host_max_bytes'] is None, status)
    expect('setup' not in status and 'closing' not in status and status['stalls'] == [], status)
    text = ctl(broker, 'status', **other)
    expect(not re.search('^(host|setup|reactor|closing) ', text, re.MULTILINE), text)
    expect({entry['type'] for entry in objects(ctl(broker, 'devices', '--json', **other))} == {'device'},
           'no devices')
    own = objects(ctl(broker, 'sessions', '--json', **other))
    expect(any(entry['pid'] == client.process.pid for entry in own), own)
    client.stop()
    broker.stop()


# ---- Time lines

def check_spans(spans):
    """Spans of one track do not overlap."""
    tracks = {}
    for span in spans:
        tracks.setdefault((span['pid'], span['tid']), []).append(span)
    for track in tracks.values():
        end = None
        for span in track:
            # Times have three digits of a microsecond: whole nanoseconds.
            began, took = round(span['ts'] * 1000), round(span['dur'] * 1000)
            expect(took >= 0, span)
            expect(end is None or began >= end, 'overlap', span, track)
            end = began + took
    return tracks


def check_trace(broker, folder, clients):
    path = os.path.join(folder, 'trace.json')
    for client in clients.values():
        client.begin(200, 100)
    ctl(broker, 'trace', '--seconds=0.5', '--output=' + path)
    for client in clients.values():
        client.finish()
    with open(path, encoding='utf-8') as file:
        trace = json.load(file)
    events = trace['traceEvents']
    spans = [event for event in events if event['ph'] == 'X']
    names = {(event['name'], event['pid'], event['tid']) for event in events if event['ph'] == 'M'}
    for event in events:
        expect(event['ph'] in 'XMCsf' and isinstance(event['pid'], int)
               and isinstance(event['tid'], int) and event['name'], event)
        expect(event['ph'] == 'M' or event['ts'] >= 0, event)
    for span in spans:
        expect(span['cat'] in ('queue', 'execution') and span['args']['reason'] in REASONS, span)
        expect(('thread_name', span['pid'], span['tid']) in names, 'a track without a name', span)
        expect(('process_name', span['pid'], 0) in names, 'a process without a name', span)
    times = [event['ts'] for event in spans]
    expect(times == sorted(times), 'not in order')
    check_spans(spans)
    processes = {event['pid']: event['args']['name'] for event in events
                 if event['name'] == 'process_name'}
    expect({processes[span['pid']] for span in spans} >= {'tenant ' + name for name in TENANTS},
           processes)
    # Each execution that waited begins when its wait ends.
    waits = {(span['pid'], span['args']['index']): span for span in spans if span['cat'] == 'queue'}
    for span in spans:
        wait = waits.get((span['pid'], span['args']['index']))
        if span['cat'] == 'execution' and wait:
            expect(round(wait['ts'] * 1000) + round(wait['dur'] * 1000) == round(span['ts'] * 1000),
                   wait, span)
    begun = {event['id'] for event in events if event['ph'] == 's'}
    expect(begun == {event['id'] for event in events if event['ph'] == 'f'}, 'arrows without ends')
    counters = {event['name'] for event in events if event['ph'] == 'C'}
    expect({'contention', 'utilization', 'VRAM of tenants'} <= counters, counters)

    # The trace is bounded and goes to standard output; brokerctl says that events are missing.
    result = subprocess.run([CTL, '--socket', broker.socket, 'trace', '--max-events=3'],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT, check=True)
    few = json.loads(result.stdout)['traceEvents']
    expect(len({event['args']['index'] for event in few if event['ph'] == 'X'}) <= 3, few)
    expect(b'beyond --max-events' in result.stderr, result.stderr)


# ---- On a terminal

TABLES = (['devices'], ['tenants'], ['sessions'], ['plans'], ['reasons'], ['stats'], ['contention'], ['leases'])
COLOUR = re.compile(r'\x1b\[[0-9;]*m')


def on_terminal(broker, columns, *arguments, **variables):
    """Return what brokerctl prints on a terminal of that width."""
    environment = {name: value for name, value in os.environ.items() if name != 'NO_COLOR'}
    environment.update({'TERM': 'xterm', **variables})
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    process = subprocess.Popen([CTL, '--socket', broker.socket, *arguments], stdout=theirs, env=environment)
    os.close(theirs)
    text = b''
    try:
        while more := os.read(ours, 65536):
            text += more
    except OSError:
        pass  # the terminal's last user has ended
    os.close(ours)
    expect(process.wait(LIMIT) == OK, arguments, 'ended with', process.returncode)
    return text.decode().replace('\r\n', '\n')


def heads_of(text):
    """Return the heads, whose lines follow titles: columns are two spaces or more apart."""
    lines = COLOUR.sub('', text).split('\n')
    return [re.split(r' {2,}', line.strip()) for before, line in zip([''] + lines, lines)
            if line.startswith('  ') and before and not before.startswith(' ')]


def check_terminal(broker):
    for listing in TABLES:
        whole = ctl(broker, *listing)
        expect(not re.search(r' $', whole, re.MULTILINE), listing, 'has rows that end with blanks')
        if whole == listing[0].capitalize() + ': none\n\n':
            continue
        heads = heads_of(whole)
        expect(heads and '\x1b' not in whole and '--wide' not in whole, listing, whole)
        expect(heads_of(on_terminal(broker, 80, *listing, '--wide')) == heads, listing, '--wide is not whole')
        wider = None
        for columns in (120, 80):
            text = on_terminal(broker, columns, *listing)
            expect(COLOUR.search(text), listing, 'has no colours')
            for line in COLOUR.sub('', text).split('\n'):
                # Sentences are no rows of a table.
                expect(len(line) <= columns or not line.startswith('  '), listing, columns, line)
            fitted = heads_of(text)
            expect(len(fitted) == len(heads), listing, fitted, heads)
            for some, every in zip(fitted, wider or heads):
                expect(set(head[:6] for head in some) <= set(head[:6] for head in every), listing, some, every)
            wider = fitted
    # The columns beside the times take no room from them.
    alone = {'CPU ALONE', 'GPU ALONE', 'ERROR', 'TRUSTED'}
    for columns, shown in ((80, set()), (120, set()), (250, alone)):
        heads, = heads_of(on_terminal(broker, columns, 'plans'))
        expect(alone & set(heads) == shown, columns, heads)
        expect(columns < 120 or {'CPU NOW', 'GPU NOW'} <= set(heads), columns, heads)
    text = on_terminal(broker, 80, 'tenants')
    left_out = int(re.search(r'^Tenants \(--wide shows (\d+) more columns\)', COLOUR.sub('', text)).group(1))
    expect(len(heads_of(text)[0]) + left_out == len(heads_of(ctl(broker, 'tenants'))[0]), text)
    for listing in (['tenants'], ['check'], ['decisions']):
        for options, variables in (([], {'NO_COLOR': '1'}), (['--color=never'], {}), ([], {'TERM': 'dumb'})):
            if listing != ['check']:
                text = on_terminal(broker, 80, *listing, *options, **variables)
                expect('\x1b' not in text, listing, options, variables, text)
    for option in ('--color', '--color=always'):
        text = ctl(broker, 'tenants', option, env={**os.environ, 'NO_COLOR': '1'})
        expect(COLOUR.search(text) and heads_of(text) == heads_of(ctl(broker, 'tenants')), option, text)
    expect(COLOUR.search(ctl(broker, 'check', '--color=always', status=None)), 'check has no colours')
    # JSON has none, and a terminal changes nothing in it.
    expect('\x1b' not in ctl(broker, 'tenants', '--json', '--color=always'), 'colours in JSON')
    complaint(broker, 'tenants', '--color=red')


# ---- Watching

def check_watch(broker):
    process = subprocess.Popen([CTL, '--socket', broker.socket, 'watch', '-n', '0.1', 'tenants', '--json',
                                '--tenant=alpha'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(3):
        expect(json.loads(process.stdout.readline())['tenant'] == 'alpha', 'not alpha')
    # watch keeps waiting for a stopped broker, because its pages still exist.
    broker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        said = complaint(broker, '--timeout=0.3', 'status', status=NO_BROKER)
        expect('stopped' in said and '0.3 s' in said, said)
    finally:
        broker.process.send_signal(signal.SIGCONT)
    expect(json.loads(process.stdout.readline())['tenant'] == 'alpha', 'not alpha')
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    expect(process.returncode == -signal.SIGINT, process.returncode)

    # watch clears a terminal before each picture.
    ours, theirs = pty.openpty()
    process = subprocess.Popen([CTL, '--socket', broker.socket, 'watch', '-n', '0.1', 'tenants'],
                               stdout=theirs)
    os.close(theirs)
    text = b''
    while text.count(b'\x1b[2J') < 2:
        text += os.read(ours, 65536)
    process.kill()
    process.wait(LIMIT)
    os.close(ours)
    expect(b'alpha' in text and not re.search(b'[\0-\b\v\f\x0e-\x1a\x1c-\x1f\x7f]', text), text)


# ---- Changing

def check_limits(broker):
    """Limits are listed with units; a value above the machine's is named so; refusals name no file."""
    ctl(broker, 'set', 'alpha', 'weight=9')
    lines = ctl(broker, 'set', 'alpha').splitlines()
    expect('alpha: weight = 9 (changed; the configuration has 105)' in lines, lines)
    expect('alpha: vram-max = 512MiB (changed; the configuration has 100%)' in lines, lines)
    ctl(broker, 'set', 'alpha', 'weight=default')
    expect('alpha: weight = 105' in ctl(broker, 'set', 'alpha').splitlines(), 'not restored')
    for text in (ctl(broker, 'set', '--help'), ctl(broker, 'help', 'set')):
        expect(re.search(r'^  vram-max +size, .*25%$', text, re.MULTILINE)
               and re.search(r'^  weight +number from 1 to 10000$', text, re.MULTILINE), text)
    said = ctl(broker, 'set', 'alpha', 'vram-max=900TiB')
    expect(re.fullmatch(r'alpha: vram-max = 900TiB \(above the [\d.]+ .iB of device 1, which limits it '
                        r'there\)\n', said), said)
    ctl(broker, 'set', 'alpha', 'vram-max=512MiB')
    said = complaint(broker, 'set', 'default', 'vram-max=4MiB', 'vram-reserve=50%', status=FAILED)
    expect(re.match(r'brokerctl: vram-reserve: tenant default reserves [\d.]+ .iB of device 1, more than its '
                    r'vram-max of 4 MiB on that device\n', said), said)
    ctl(broker, 'set', 'default', 'vram-max=default')


def check_drain(broker):
    """A drain ends although clients hold device memory, which it names; status has what is charged."""
    with subprocess.Popen([CTL, '--socket', broker.socket, 'exec', '--vram=1MiB', '--no-layer', '--quiet',
                           '--', 'sleep', '1000'], stdout=subprocess.DEVNULL) as holder:
        wait_for(lambda: objects(ctl(broker, 'leases', '--json')), 'no lease')
        said = ctl(broker, 'drain', 'tenant', 'default', '--wait=30', status=HELD)
        expect(re.match(r'tenant default is drained; 1 MiB remain: lease \d+ of .*, process \d+ \(1 MiB\)\n$',
                        said), said)
        expect(ctl(broker, 'drain', 'tenant', 'default', '--status') == said, 'another answer')
        ctl(broker, 'drain', 'tenant', 'default', '--end')
        status, = objects(ctl(broker, 'status', '--json'))
        charge, = status['charges']
        expect(charge['device'] == 1 and charge['tenants_charged'] == 1
               and charge['charged_bytes'] == 1 << 20 < charge['limit_bytes'], charge)
        expect(re.search(r'; 1 MiB of [\d.]+ .iB charged to 1 tenant$', ctl(broker, 'status'), re.MULTILINE),
               'not charged')
        holder.terminate()
        holder.wait(LIMIT)


def check_admin(broker):
    expect(ctl(broker, 'set', 'alpha', 'weight=250', 'vram-max=512MiB') ==
           'alpha: weight = 250\nalpha: vram-max = 512MiB\n', 'not set')
    alpha, = objects(ctl(broker, 'tenants', '--json', '--tenant=alpha'))
    expect(alpha['weight'] == 250 and alpha['changed'], alpha)
    expect(alpha['devices'][1]['memory_max'] == 512 << 20, alpha)
    complaint(broker, 'set', 'alpha', 'weight=many', status=FAILED)
    ctl(broker, 'set', 'alpha', 'weight=default')
    alpha, = objects(ctl(broker, 'tenants', '--json', '--tenant=alpha'))
    expect(alpha['weight'] == 105, alpha)

    check_limits(broker)
    check_drain(broker)

    expect('evict' in ctl(broker, 'evict', 'alpha'), 'nothing said')
    expect('evict' in ctl(broker, 'evict', '--all', '--device=1'), 'nothing said')
    ctl(broker, 'evict', 'alpha', 'large')
    complaint(broker, 'evict', 'alpha', 'nothing', status=FAILED)

    expect(ctl(broker, 'drain', 'device', 'GPU1', '--wait=30') == 'device GPU1 is drained\n',
           'not drained')
    gpu = of_type(objects(ctl(broker, 'devices', '--json')), 'device')[1]
    expect(gpu['drained'], gpu)
    expect('drained' in ctl(broker, 'status'), 'no warning')
    expect(ctl(broker, 'drain', 'device', '1', '--end') == 'device 1 accepts work\n', 'drained')
    ctl(broker, 'drain', 'tenant', 'beta', '--wait')
    expect(ctl(broker, 'drain', 'tenant', 'beta', '--status') == 'tenant beta is drained\n', 'not drained')
    expect(ctl(broker, 'drain', 'tenant', 'beta', '--end') == 'tenant beta accepts work\n', 'drained')
    complaint(broker, 'drain', 'device', 'CPU', status=FAILED)

    expect(ctl(broker, 'log-level', 'debug') == 'debug\n', 'not debug')
    expect(ctl(broker, 'log-level') == 'debug\n', 'not debug')
    expect(ctl(broker, 'log-level', 'info') == 'info\n', 'not info')


# Keys of section [broker] at the broker's start
KEYS = 'turn-budget = 70\n'


def check_reload(broker, conf):
    """status has the last refused reload, with file and line, until a reload is accepted."""
    def status():
        about, = objects(ctl(broker, 'status', '--json'))
        return about

    before = status()
    expect(before['reload']['accepted'] == 1 and before['reload']['refused'] == 0
           and before['reload']['refused_because'] is None, before)
    with open(conf, encoding='utf-8') as file:
        right = file.read()
    with open(conf, 'w', encoding='utf-8') as file:
        file.write('[tenant late]\nmatch-uid = 4294968\nvram-max = much\nweigth = 3\n')
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: status()['reload']['refused'] == 1, 'the reload is not refused')
    reload = status()['reload']
    expect(reload['refused_because'].startswith(conf + ":3: vram-max: 'much' is not a size"), reload)
    expect(reload['refused_errors'] == 2 and reload['refused_ns'] > reload['accepted_ns'] > 0, reload)
    expect(any(conf + ':3: ' in warning for warning in status()['warnings']), status())
    text = ctl(broker, 'status')
    expect(re.search(r'^reload   accepted .*, refused .* ago\): .*:3: vram-max: .*; and 1 more error$', text,
                     re.MULTILINE), text)
    # The number is that of all errors, also of those that the log counts in its last line, and of no warnings.
    for n_refused, keys, n_errors in ((2, 'weigth = 3\n' * 100, 100), (3, 'vram-max = 50% # half\n', 1)):
        with open(conf, 'w', encoding='utf-8') as file:
            file.write('[tenant late]\nmatch-uid = 4294968\n' + keys)
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: status()['reload']['refused'] == n_refused, 'the reload is not refused')
        expect(status()['reload']['refused_errors'] == n_errors, status()['reload'])
    with open(conf, 'w', encoding='utf-8') as file:
        file.write(right)
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: status()['reload']['accepted'] == 2, 'the reload is not accepted')
    expect(not any(conf + ':3: ' in warning for warning in status()['warnings']), status())

    # Keys of [broker] that are not those of the start wait for the next one, unless the command line has them.
    waiting = ' effect at the next start of brokerd'
    for n_accepted, keys, names in (
            (3, 'workers = 1\nturn-budget = 70\ngpu = auto\n', 'workers'),
            (4, 'turn-budget = 60\nworkers = 1\n', 'turn-budget, workers'),
            (5, '', 'turn-budget'), (6, KEYS, None)):
        with open(conf, 'w', encoding='utf-8') as file:
            file.write(right.replace(KEYS, keys))
        broker.process.send_signal(signal.SIGHUP)
        wait_for(lambda: status()['reload']['accepted'] == n_accepted, 'the reload is not accepted')
        about = status()
        expect(about['reload']['waiting_keys'] == names, about)
        expect([text for text in about['warnings'] if waiting in text and text.endswith(f': {names}')]
               if names else not [text for text in about['warnings'] if waiting in text], about)


def check_before_its_first_session(folder):
    """A new section is listed and can be changed before a client connects."""
    conf = os.path.join(folder, 'conf')

    def names():
        return {entry['tenant'] for entry in objects(ctl(broker, 'tenants', '--json'))}

    with open(conf, 'w', encoding='utf-8') as file:
        file.write(f'[broker]\n{KEYS}[tenant early]\nmatch-uid = 4294967\n')
    broker = Broker(folder, '--config', conf, '--gpu=none', '--calibration=none')
    expect(names() == {'default', 'early'}, names())
    expect(ctl(broker, 'plans') == 'Plans: none\n\n', ctl(broker, 'plans'))
    expect(ctl(broker, 'plans', '--no-header') == '', ctl(broker, 'plans', '--no-header'))
    with open(conf, 'a', encoding='utf-8') as file:
        file.write('[tenant late]\nmatch-uid = 4294968\nweight = 7\n')
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: names() == {'default', 'early', 'late'}, 'no tenant late')
    for listing in ('plans', 'decisions', 'reasons', 'stats', 'sessions', 'leases'):
        said = complaint(broker, listing, '--tenant=late', status=FAILED)
        expect('tenant late has no session now' in said and 'run 0 tasks' in said, listing, said)
    said = complaint(broker, 'why', 'plan', 'x', '--tenant=late', status=FAILED)
    expect('tenant late has no session now' in said, said)
    expect('no tenant nobody' in complaint(broker, 'why', 'plan', 'x', '--tenant=nobody', status=FAILED),
           'another reason')
    answer, = objects(ctl(broker, 'why', 'late', '--json'))
    expect(answer['what'] == 'tenant' and answer['tenant'] == 'late' and answer['tasks'] == 0, answer)
    for part in ('has run no task', 'weight is now 7', 'no client of it is connected now'):
        expect(any(part in fact for fact in answer['facts']), part, answer)
    expect(ctl(broker, 'why', 'tenant', 'late').startswith('tenant late: no client of it is connected'),
           'another answer')
    # A tenant whose last client has ended.
    client = Client(broker)
    client.run(3, 0)
    client.stop()
    wait_for(lambda: objects(ctl(broker, 'tenants', '--json', '--tenant=default'))[0]['sessions'] == 0,
             'a session stays')
    answer, = objects(ctl(broker, 'why', 'default', '--json'))
    expect(any('it has run 3 tasks' in fact for fact in answer['facts']), answer)
    expect('run 3 tasks' in complaint(broker, 'plans', '--tenant=default', status=FAILED), 'not three')

    ctl(broker, 'set', 'late', 'sessions-max=3')
    late, = objects(ctl(broker, 'tenants', '--json', '--tenant=late'))
    expect(late['weight'] == 7 and late['changed'] and late['named'] and late['sessions'] == 0, late)
    ctl(broker, 'drain', 'tenant', 'early')
    early, = objects(ctl(broker, 'tenants', '--json', '--tenant=early'))
    expect(early['drained'], early)
    check_reload(broker, conf)
    # The tenant is removed with its section, because it had no session.
    with open(conf, 'w', encoding='utf-8') as file:
        file.write('[tenant late]\nmatch-uid = 4294968\n')
    broker.process.send_signal(signal.SIGHUP)
    wait_for(lambda: names() == {'default', 'late'}, 'tenant early stays')
    broker.stop()


def main():
    with tempfile.TemporaryDirectory() as folder:
        broker, clients = start(folder)
        check_documented(broker, clients['alpha'])
        check_listings(broker)
        check_plan_times(broker)
        check_mistakes(broker)
        check_doctor(broker)
        check_names(broker)
        check_why(broker)
        check_trace(broker, folder, clients)
        check_terminal(broker)
        check_watch(broker)
        check_admin(broker)
        for client in clients.values():
            client.stop()
        broker.stop()
        # The broker is dead: its files exist, but no process listens.
        expect('is brokerd running' in complaint(broker, 'status', status=NO_BROKER), 'no hint')
    with tempfile.TemporaryDirectory() as folder:
        check_why_refused(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_why_of_tenant(folder)
    with tempfile.TemporaryDirectory() as folder:
        check_before_its_first_session(folder)
    print('brokerctl: well')


if __name__ == '__main__':
    main()
