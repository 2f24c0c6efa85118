#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokertop without a terminal, over recorded pages.

    brokertop.py BROKERTOP RECORD-SCENE doc/operating.md
    brokertop.py --update BROKERTOP RECORD-SCENE doc/operating.md
                    draws what the pictures are compared with anew, and the one in that document

Every view at three sizes must equal its picture in data/brokertop, two views in ASCII at one size; so must the
picture in doc/operating.md. No control character of a hostile page is printed. A wrong command line, file or
terminal yields one message.
"""
import glob
import json
import os
import pty
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc'))
import figures
from started import LIMIT, expect

UPDATES = sys.argv[1] == '--update'
TOP, RECORD, DOCUMENT = sys.argv[1 + UPDATES:]
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data/brokertop')
SIZES = ('80x24', '120x40', '250x70')
VIEWS = ('overview', 'tenants', 'sessions', 'plans', 'decisions', 'leases')
OK, FAILED, USAGE, NO_BROKER = range(4)
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ('LANG', 'LC_CTYPE', 'NO_COLOR', 'COLUMNS', 'LINES')}
ENVIRONMENT |= {'LC_ALL': 'C.UTF-8', 'TZ': 'UTC', 'TERM': 'xterm-256color'}
# Characters that a picture may contain.
SIGNS = re.compile('[ -~\n°µ·–…─│└├█░▒▓▏▕▲▴▾✓⠀-⣿]*')


def top(*arguments, status=OK, **environment):
    """Return standard output, as bytes, and standard error."""
    done = subprocess.run([TOP, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=LIMIT, check=False,
                          env={**ENVIRONMENT, **environment})
    error = done.stderr.decode()
    expect(done.returncode == status, arguments, 'ended with', done.returncode, error)
    expect((status == OK) == (error == ''), arguments, 'says', repr(error))
    return done.stdout, error


def record(folder, scene, moments):
    path = os.path.join(folder, f'{scene}.pages')
    subprocess.run([RECORD, scene, str(moments), path], check=True, timeout=LIMIT)
    return path


def pictures(paths):
    """Yield the name and options of every picture; those in ASCII have a file at 120x40 only."""
    for size in SIZES:
        yield f'three-{size}', ['--page', paths['three'], '--size', size]
        yield f'three-{size}-ascii', ['--page', paths['three'], '--size', size, '--ascii']
        for view in VIEWS[1:]:
            yield f'three-{view}-{size}', ['--page', paths['three'], '--size', size,
                                           '--view', view]
        yield f'three-leases-{size}-ascii', ['--page', paths['three'], '--size', size,
                                             '--view=leases', '--ascii']
    for scene in ('cpu', 'own', 'many'):
        yield f'{scene}-120x40', ['--page', paths[scene], '--size', '120x40']
    yield 'own-leases-120x40', ['--page', paths['own'], '--size', '120x40', '--view=leases']
    yield 'one-120x40', ['--page', paths['three'], '--size', '120x40', '--tenant', 'web']


def check_pictures(paths):
    for name, arguments in pictures(paths):
        text, _ = top('--once', *arguments)
        width = int(re.search(r'(\d+)x', name)[1])
        expect(max(map(len, text.decode().splitlines())) <= width, name, 'is too wide')
        if name.endswith('ascii'):
            expect(text.isascii(), name, 'is not ASCII')
            if '120x40' not in name:
                continue
        path = os.path.join(DATA, name + '.txt')
        if UPDATES:
            with open(path, 'wb') as file:
                file.write(text)
            continue
        with open(path, 'rb') as file:
            wanted = file.read()
        expect(text == wanted, f'{name} is\n{text.decode()}\ninstead of\n{wanted.decode()}')


def check_locale(paths):
    """Without UTF-8 in the locale, brokertop uses ASCII."""
    arguments = ['--page', paths['three'], '--size=120x40']
    ascii_text, _ = top('--once', '--ascii', *arguments)
    expect(top('--once', *arguments, LC_ALL='C')[0] == ascii_text, 'the C locale makes a difference')
    for option in ('--color', '--color=always', '--colour=always'):
        text, _ = top('--once', '--ascii', option, *arguments, NO_COLOR='1')
        plain = re.sub(rb'\x1b\[[0-9;]*m', b'', text)
        expect(text != plain, option, 'gives no colours')
        rows = [[row.rstrip() for row in picture.splitlines()] for picture in (plain, ascii_text)]
        expect(rows[0] == rows[1], option, 'changes more than colours')
    for options in (['--color=auto'], ['--color=never'], ['--color', '--no-colour'], ['--color', '--color=auto']):
        expect(top('--once', '--ascii', *options, *arguments)[0] == ascii_text, options, 'in a pipe')
    sized, _ = top('--once', '--page', paths['three'], COLUMNS='90', LINES='30')
    expect(sized == top('--once', '--page', paths['three'], '--size=90x30')[0],
           'COLUMNS and LINES are nothing')


def check_hostile(paths):
    for view in VIEWS:
        for size in SIZES + ('41x11',):
            text, _ = top('--once', '--page', paths['hostile'], '--view', view, '--size', size)
            expect(SIGNS.fullmatch(text.decode()), view, size, 'prints', repr(text))
    text, _ = top('--json', '--once', '--page', paths['hostile'])
    expect(not re.search(rb'[\x00-\x09\x0b-\x1f\x7f]', text), 'control bytes', repr(text))
    json.loads(text.decode(), parse_constant=lambda name: expect(False, name))


def check_json(paths):
    lines = top('--json', '--once', '--page', paths['three'])[0].decode().splitlines()
    expect(len(lines) == 1, lines)
    about = json.loads(lines[0])
    expect([tenant['tenant'] for tenant in about['tenants']] == ['llm', 'web', 'batch'], about)
    expect(len(about['sessions']) == 9 and about['sessions'][0]['comm'] == 'llm-server', about)
    first, *_, last = about['sessions']
    expect((first['memory_used'], first['p50_ns'], first['p99_ns'], first['evictions']) ==
           (192 << 20, 41000, 910000, 1), first)
    expect(first['tenant_run_queue_behind'] == 'rsync' and
           first['tenant_run_queue_p99_ns'] == 100000, first)
    # The shares of a tenant's sessions add up to the tenant's share.
    for tenant in about['tenants']:
        shares = sum(entry['gpu_share'] for entry in about['sessions']
                     if entry['tenant'] == tenant['number'])
        expect(abs(shares - tenant['gpu_share']) < 0.001, tenant, shares)
    expect(last['gpu_share'] < 0.1, last)
    gpu = about['devices'][1]
    expect(gpu['memory_total'] == 8 << 30 and gpu['keeps_reserves'] is True, about)
    expect(about['devices'][0]['temperature_millicelsius'] is None, about)
    expect(48000 < about['tasks_per_s'] < 49000 and about['all'] is True, about)
    expect(about['tenants'][1]['memory_max'] == 2 << 30, about)
    expect(json.loads(top('--json', '--once', '--page', paths['own'])[0])['all'] is False, 'all')
    expect((about['contention_factor'], about['contention_at_cap'], about['contention_behind']) ==
           (1.4, False, 'rsync'), about)
    llm, web, batch = about['tenants']
    expect([tenant['run_queue_behind'] for tenant in (llm, web, batch)] == ['rsync'] * 3, about)
    expect((about['host_bytes'], about['host_max_bytes']) == (384 << 20, 12 << 30), about)
    own = json.loads(top('--json', '--once', '--page', paths['own'])[0])
    expect((own['host_bytes'], own['host_max_bytes']) == (None, None), own)
    expect(len(about['plans']) == 14, about['plans'])
    plan = about['plans'][1]
    expect((plan['tenant'], plan['plan'], plan['memory']) == (1, 'llm-1', 'evicted'), plan)
    expect((plan['gpu'], plan['gpu_ns'], plan['speedup']) == (1, 4.1e6, 7.6), plan)
    # Learned times, and the same with the contention of now: half an octave on the CPU, none on the GPU.
    expect((plan['cpu_ns'], plan['gpu_now_ns']) == (31e6, 4.1e6), plan)
    expect(abs(plan['cpu_now_ns'] / 31e6 - 2 ** 0.5) < 1e-4, plan)
    expect((plan['window_error'], plan['trusted']) == (0.04, True), plan)
    expect(9.9 < plan['tasks_per_s'] < 10.1 and plan['state'] == 'live', plan)
    decisions = about['decisions']
    expect(len(decisions) == 3 * 64, len(decisions))
    expect(decisions == sorted(decisions, key=lambda one: -one['ended_ns']), decisions)
    expect(sorted((one['tenant'], one['index']) for one in decisions) ==
           [(tenant, index) for tenant in (1, 2, 3) for index in range(936, 1000)], decisions)
    failed = [one for one in decisions if one['res'] < 0]
    expect([one['res'] for one in failed] == [-5] * 3, failed)
    expect(failed[0]['device'] == 0 and failed[0]['reason'] == 'below-threshold' and
           failed[0]['predicted_ns'] == 40000 and failed[0]['exec_ns'] == 41000, failed)
    leases = about['leases']
    expect([lease['name'] for lease in leases] == ['llama-server', 'ffmpeg', 'vkcube'], leases)
    expect([lease['over'] for lease in leases] == [False, False, True], leases)
    expect(leases[1]['waiting'] and leases[1]['waiting_bytes'] == 128 << 20, leases)
    expect([lease['seen_bytes'] for lease in leases] == [472 << 20, None, 672 << 20], leases)
    expect([lease['busy_percent'] for lease in leases] == [25, None, 25], leases)
    expect([lease['busy_ns'] for lease in leases] == [112500000000, None, 112500000000], leases)
    expect(leases[0]['granted_bytes'] == 512 << 20 and leases[0]['pid'] == 4301, leases)
    # The output has the sessions and leases of one tenant only.
    web = json.loads(top('--json', '--once', '--page', paths['three'], '--tenant=web')[0])
    number = web['tenants'][0]['number']
    expect([tenant['tenant'] for tenant in web['tenants']] == ['web'], web)
    expect(len(web['sessions']) == 6 and {entry['tenant'] for entry in web['sessions']} == {number}, web)
    expect([lease['name'] for lease in web['leases']] == ['ffmpeg'], web)
    expect({entry['tenant'] for entry in web['plans'] + web['decisions']} == {number}, web)
    text, _ = top('--once', '--page', paths['three'], '--tenant=web', '--view=leases')
    expect(b'ffmpeg' in text and b'vkcube' not in text, text)


def documented():
    """Return the JSON members of a line and of its arrays that brokertop(1) lists."""
    with open(os.path.join(os.path.dirname(DOCUMENT), 'brokertop.1'), encoding='utf-8') as file:
        text = file.read()
    text = text[text.index('.Sh JSON'):text.index('.Sh ENVIRONMENT')]
    rows = figures.tables(glob.glob(os.path.join(os.path.dirname(DOCUMENT), '../shm/stats-figures-*.c')))
    found = {}
    for part in re.split(r'^\.Ss ', text, flags=re.MULTILINE):
        kind = part.split('\n', 1)[0].split()[-1] if found else 'line'
        found[kind] = {name for line in re.findall(r'^\.It Va (.*)$', part, re.MULTILINE)
                       for name in re.findall(r'[a-z][a-z0-9_]*', line)}
        # brokertop(1) refers to brokerctl(1) for these members.
        found[kind] |= {row.fields['json'] for row in rows.get(kind.removesuffix('s') + '_figures', [])
                        if 'top' in row.fields}
    return found


def check_documented(paths):
    about = json.loads(top('--json', '--once', '--page', paths['three'])[0])
    own = json.loads(top('--json', '--once', '--page', paths['own'])[0])
    known = documented()
    kinds = {'devices', 'tenants', 'sessions', 'plans', 'decisions', 'leases'}
    expect(set(known) == kinds | {'line'}, known.keys())
    expect(set(about) == known['line'], 'the line', set(about) ^ known['line'])
    for kind in sorted(kinds):
        expect(about[kind] and own[kind], kind)
        for entry in about[kind]:
            expect(set(entry) == known[kind], kind, set(entry) ^ known[kind])
        for entry in own[kind]:
            expect(set(entry) <= known[kind], kind, set(entry) - known[kind])


def check_moments(paths):
    """--json prints every moment of a recording, or the first ones; --once prints the last."""
    lines = [json.loads(line) for line in top('--json', '--page', paths['own'])[0].splitlines()]
    times = [line['updated_ns'] for line in lines]
    expect(len(lines) == 20 and times == sorted(set(times)), times)
    expect(lines[0]['tasks_per_s'] is None and lines[-1]['tasks_per_s'] > 0, lines[0], lines[-1])
    once = json.loads(top('--json', '--once', '--page', paths['own'])[0])
    expect({**once, 'time_ns': 0} == {**lines[-1], 'time_ns': 0}, once, lines[-1])
    expect(len(top('--json', '-n', '3', '--page', paths['own'])[0].splitlines()) == 3, '-n')
    arguments = ['--page', paths['own'], '--size=80x24']
    expect(top('--batch', *arguments)[0].count(b'recorded') == 20, '--batch')
    expect(top('--batch', *arguments)[0].endswith(top('--once', *arguments)[0]), 'the last one')


def check_cut(folder, paths):
    """Of a recording that was cut, all whole moments are printed, and the last one says it."""
    whole = top('--json', '--page', paths['own'])[0].splitlines()
    path = os.path.join(folder, 'cut.pages')
    with open(paths['own'], 'rb') as file, open(path, 'wb') as cut:
        cut.write(file.read()[:-5])
    lines = top('--json', '--page', path)[0].splitlines()
    expect(len(lines) == len(whole) - 1, len(lines))
    for line, wanted in zip(lines[:-1], whole):
        expect({**json.loads(line), 'time_ns': 0} == {**json.loads(wanted), 'time_ns': 0}, line)
    expect([json.loads(line)['warning'] for line in lines] ==
           [''] * (len(lines) - 1) + ['the recording was cut: this is its last whole moment'], lines[-1])
    text, _ = top('--once', '--page', path, '--size=80x24')
    expect('▲ the recording was cut'.encode() in text, text.decode())


def check_mistakes(folder, paths):
    for arguments in (['-d', '0'], ['-d', 'x'], ['-d', '1e9'], ['-d', '-1'], ['-n', '0'],
                      ['-n', 'x'], ['--size=x'], ['--size=0x5'], ['--size=99999999999x2'],
                      ['--view=none'], ['more'], ['--page=a', '--record=b']):
        _, error = top(*arguments, status=USAGE)
        expect(error.count('\n') == 1 and error.startswith('brokertop: '), error)
    for arguments, wanted in ((['--veiw=plans'], 'no option --veiw; did you mean --view?'),
                              (['--nonsense'], 'no option --nonsense; see brokertop --help'),
                              (['-x'], 'no option -x'), (['--once', '--tenant'], '--tenant needs'),
                              (['-d'], '-d needs'), (['--once=3'], '--once takes no argument'),
                              (['--s=80x24'], 'no option --s;'),
                              (['--view=tenant'], 'not tenant'), (['--color=red'], 'not red')):
        _, error = top(*arguments, status=USAGE)
        expect(error.startswith('brokertop: ') and wanted in error and error.count('\n') == 1, error)
    _, error = top('--once', '--socket', folder + '/none', status=NO_BROKER)
    expect(error.count('\n') == 1, error)
    top('--page', folder + '/none', status=FAILED)
    top('--page', TOP, '--once', status=FAILED)
    top('--page', folder, '--once', status=FAILED)
    top('--page', paths['three'], '--tenant=nobody', '--once', status=FAILED)
    short = os.path.join(folder, 'short')
    with open(paths['three'], 'rb') as file, open(short, 'wb') as cut:
        cut.write(file.read(1000))
    _, error = top('--page', short, '--once', status=FAILED)
    expect('no recording' in error, error)
    open(os.path.join(folder, 'empty'), 'wb').close()
    top('--page', folder + '/empty', '--once', status=FAILED)
    # The cases are: no terminal, an unknown terminal type, and a printing terminal.
    _, error = top('--page', paths['three'], status=USAGE)
    expect('--batch' in error and error.count('\n') == 1, error)
    for term, wanted in (('nothing-known', b'is not known'), ('', b'is not known'),
                         ('dumb', b'cannot move its cursor, TERM=dumb')):
        master, slave = pty.openpty()
        done = subprocess.run([TOP, '--page', paths['three']], stdin=slave, stdout=slave,
                              stderr=subprocess.PIPE, timeout=LIMIT, check=False,
                              env={**ENVIRONMENT, 'TERM': term})
        os.close(slave)
        os.close(master)
        expect(done.returncode == USAGE and b'--batch' in done.stderr, term, done)
        expect(wanted in done.stderr and b'COLUMNS' not in done.stderr, term, done)
    # The message names the size, not TERM, as the cause.
    for name in ('COLUMNS', 'LINES'):
        master, slave = pty.openpty()
        done = subprocess.run([TOP, '--page', paths['three']], stdin=slave, stdout=slave,
                              stderr=subprocess.PIPE, timeout=LIMIT, check=False,
                              env={**ENVIRONMENT, name: '99999999'})
        os.close(slave)
        os.close(master)
        expect(done.returncode == USAGE and f'{name}=99999999'.encode() in done.stderr and
               b'TERM' not in done.stderr, name, done)
    # The message says which of standard input and output is not a terminal.
    for side in ('input', 'output'):
        master, slave = pty.openpty()
        done = subprocess.run([TOP, '--page', paths['three']], stderr=subprocess.PIPE, timeout=LIMIT,
                              stdin=subprocess.DEVNULL if side == 'input' else slave,
                              stdout=subprocess.DEVNULL if side == 'output' else slave,
                              check=False, env=ENVIRONMENT)
        os.close(slave)
        os.close(master)
        expect(done.returncode == USAGE and f'standard {side} is'.encode() in done.stderr, done)
    # The reader has closed the pipe.
    shell = f'{TOP} --batch --page {paths["three"]} | true'
    expect(subprocess.run(shell, shell=True, timeout=LIMIT, env=ENVIRONMENT,
                          stderr=subprocess.PIPE, check=False).stderr == b'', 'a broken pipe')
    if os.path.exists('/dev/full'):
        with open('/dev/full', 'wb') as full:
            done = subprocess.run([TOP, '--once', '--page', paths['three']], stdout=full,
                                  stderr=subprocess.PIPE, timeout=LIMIT, check=False,
                                  env=ENVIRONMENT)
        expect(done.returncode == FAILED and b'cannot write' in done.stderr, done)
        for option in ('--help', '--version'):
            shell = f'{TOP} {option} >/dev/full'
            done = subprocess.run(shell, shell=True, stderr=subprocess.PIPE, timeout=LIMIT,
                                  check=False)
            expect(done.returncode == FAILED and b'cannot write' in done.stderr, done)
    # Messages contain no escape sequences of their arguments.
    for arguments in (['--page', folder + '/\033[2J'], ['--socket', folder + '/\033[2J', '--once'],
                      ['--page', paths['three'], '--tenant=\033[2J', '--once']):
        done = subprocess.run([TOP, *arguments], stderr=subprocess.PIPE, timeout=LIMIT, check=False)
        expect(done.returncode in (FAILED, NO_BROKER), done)
        expect(b'?[2J' in done.stderr and b'\033' not in done.stderr, done)


def check_readme():
    with open(DOCUMENT, encoding='utf-8') as file:
        text = file.read()
    with open(os.path.join(DATA, 'three-120x40.txt'), encoding='utf-8') as file:
        picture = file.read()
    if UPDATES:
        text = re.sub(r'```\n brokertop · recorded.*?```\n', lambda _: '```\n' + picture + '```\n',
                      text, flags=re.DOTALL)
        with open(DOCUMENT, 'w', encoding='utf-8') as file:
            file.write(text)
    expect('```\n' + picture + '```\n' in text, 'the picture in doc/operating.md is not\n' + picture)


def main():
    with tempfile.TemporaryDirectory() as folder:
        paths = {scene: record(folder, scene, moments) for scene, moments in
                 (('three', 371), ('cpu', 20), ('own', 20), ('many', 2), ('hostile', 5))}
        check_pictures(paths)
        if UPDATES:
            check_readme()
            return
        check_locale(paths)
        check_hostile(paths)
        check_json(paths)
        check_documented(paths)
        check_moments(paths)
        check_cut(folder, paths)
        check_mistakes(folder, paths)
    check_readme()
    print('brokertop: well')


main()
