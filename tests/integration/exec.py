#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerctl exec, leases and lease beside a real broker with a software device of 64 MiB.

    exec.py BROKERCTL BROKERD STATS_CLIENT MEMBER MANIFEST BROKERCTL.1 VULKAN_CLIENT [BROKERTOP]

MEMBER joins the lease that its environment names; MANIFEST is the layer's, in the build folder;
VULKAN_CLIENT knows nothing of leases. Without BROKERTOP its view of leases is not checked.
"""
import atexit
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ctlrig import CTL, FAILED, LIMIT, NOT_PERMITTED, OK, USAGE, Broker, ctl, expect, objects, wait_for

MEMBER, MANIFEST, MANUAL, VULKAN_CLIENT = sys.argv[4:8]
TOP = sys.argv[8] if len(sys.argv) > 8 else None
NOT_RUN, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
MIB = 1 << 20
OURS = re.compile('^(RINGBROKER|LLAMA|GGML|XDG_DATA_DIRS|XDG_CONFIG|VK_)')


def environment(folder, **more):
    clean = {name: value for name, value in os.environ.items() if not OURS.match(name)}
    return {**clean, 'XDG_DATA_DIRS': os.path.join(folder, 'data') + ':/usr/share', **more}


class Exec:
    """brokerctl exec of @arguments, with pipes at its standard streams."""

    def __init__(self, broker, *arguments, timeout_s=5, env=None, **options):
        self.process = subprocess.Popen(
            [CTL, '--socket', broker.socket, f'--timeout={timeout_s}', 'exec', *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=env or broker.env, **options)

    def line(self):
        return self.process.stdout.readline().strip()

    def expect_ready(self):
        line = self.line()
        if line != 'ready':
            expect(False, line, self.process.stderr.read())

    def end(self, status=OK):
        """Return its standard output and standard error."""
        out, err = self.process.communicate(timeout=LIMIT)
        expect(self.process.returncode == status, self.process.args, 'ended with',
               self.process.returncode, out, err)
        return out, err


def run(broker, *arguments, status=OK, env=None):
    return Exec(broker, *arguments, env=env).end(status)


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
        return file.read().split()


def leases(broker):
    return objects(ctl(broker, 'leases', '--json'))


def check_odd_programs(broker):
    """Scripts with a missing interpreter or without one; files that are no programs; full disks; closed
    descriptors; a lease within a lease."""
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, 'script')
        for text, status in (('exit 5\n', 5), ('#!/nowhere/interpreter\n', NOT_FOUND)):
            with open(script, 'w', encoding='utf-8') as file:
                file.write(text)
            os.chmod(script, 0o755)
            run(broker, '--vram=8MiB', '--', script, status=status)
        run(broker, '--vram=8MiB', '--', folder, status=NOT_EXECUTABLE)
    run(broker, '--vram=8MiB', '--', '', status=NOT_FOUND)
    for size in ('-1', '16EiB', '99999999999999999999', '0x10', '8 MiB', 'nan', '8X'):
        out, err = run(broker, '--vram', size, 'true', status=NOT_RUN)
        expect(out == '' and 'size such as' in err, size, err)
    for time_text in ('-1s', 'nan', 'inf', '1e3', '99999999999h'):
        _, err = run(broker, '--vram=8MiB', '--wait', time_text, 'true', status=NOT_RUN)
        expect('time such as' in err, time_text, err)
    _, err = run(broker, '--vram=8MiB', '--report=/dev/full', 'true', status=FAILED)
    expect('No space left' in err, err)
    # brokerctl's own messages do not go into the connection, and the program gets no other output instead.
    arguments = ' '.join([CTL, '--socket', broker.socket, 'exec', '--vram=8MiB', '--'])
    for closed, status in (('2>&-', 3), ('>&- 2>&-', 3), ('<&- >&- 2>&-', 3)):
        subprocess.run(['sh', '-c', f'{arguments} sh -c "exit 3" {closed}; test $? = {status}'],
                       env=broker.env, check=True, timeout=LIMIT)
    out, _ = run(broker, '--vram=32MiB', CTL, 'exec', '--vram=16MiB', '--', 'sh', '-c',
                 'echo $RINGBROKER_LEASE; exit 9', status=9)
    expect(int(out) > 0, out)


def check_status(broker):
    def ends(script, status, *options):
        return run(broker, '--vram=8MiB', *options, '--', 'sh', '-c', script, status=status)

    expect(ends('exit 0', 0)[1].count('\n') == 1, 'not one line')
    expect(ends('echo out; exit 7', 7, '--quiet') == ('out\n', ''), 'it says something')
    # Status 1 to 4 and 125 can be the program's, too.
    ends('exit 3', 3)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV):
        ends(f'kill -{int(number)} $$', 128 + number)
    # The program does not inherit the signals that brokerctl ignores.
    ends(f'kill -{int(signal.SIGPIPE)} $$; exit 1', 128 + signal.SIGPIPE)
    _, err = run(broker, '--vram=8MiB', '--', '/nowhere/program', status=NOT_FOUND)
    expect('/nowhere/program' in err and 'used' not in err, err)
    run(broker, '--vram=8MiB', '--', 'no-such-program-at-all', status=NOT_FOUND)
    run(broker, '--vram=8MiB', '--', MANUAL, status=NOT_EXECUTABLE)
    check_odd_programs(broker)
    # Options after the program's name are the program's.
    expect(run(broker, '--vram=8MiB', 'echo', '--vram=1', '--wait')[0] == '--vram=1 --wait\n', '')
    for bad in (['--', 'true'], ['--vram=8MiB'], ['--vram=no', 'true'], ['--vram=0', 'true'],
                ['--vram=8MiB', '--min=9MiB', 'true'], ['--vram=8MiB', '--max=7MiB', 'true'],
                ['--vram=8MiB', '--wait=soon', 'true'], ['--vram=8MiB', '--wait=1.1h', 'true'], ['--vram=8MiB', '--wait', '1x', 'true'],
                ['--vram=8MiB', '--device=99', 'true'], ['--no-such-option', 'true'],
                ['--vram=8MiB', '--device=0', 'true'],
                ['--vram=8MiB', '--report=/nowhere/file', 'true'],
                ['--vram=8MiB', '--share=0', 'true'], ['--vram=8MiB', '--share=10001', 'true'], ['--vram=8MiB', '--share=', 'true'],
                ['--vram=8MiB', '--share=25%', 'true'], ['--vram=8MiB', '--share=25', '--no-layer', 'true'],
                ['--vram=8MiB', '--sleep', '--no-layer', 'true'],
                ['--vram=8MiB', '--tenant=somebody', 'true'], ['--vram=8GiB', 'true']):
        out, err = run(broker, *bad, status=NOT_RUN)
        expect(out == '' and err, bad, out, err)
    _, err = run(broker, '--vram=8GiB', 'true', status=NOT_RUN)
    expect(all(word in err for word in ('default', '8 GiB', "64 MiB (the device's memory)")), err)
    # An amount without a unit is refused.
    for option in ('--vram', '--min', '--max'):
        _, err = run(broker, '--vram=8MiB', f'{option}=64', 'true', status=NOT_RUN)
        expect(option in err and '64 bytes, less than a page' in err and '4GiB' in err, err)
    run(broker, '--vram=8MiB', '--tenant=default', 'true')
    expect(leases(broker) == [], 'leases are left')


def check_environment(broker, folder):
    show = ['--', 'sh', '-c', 'cd / && env']

    def of(*options, env=None):
        lines = run(broker, *options, *show, env=env)[0].splitlines()
        return dict(line.split('=', 1) for line in lines if OURS.match(line))

    found = of('--vram=32MiB')
    expect(found['RINGBROKER_VULKAN_LEASE'] == '1' and int(found['RINGBROKER_LEASE']) > 0, found)
    expect(os.path.isabs(found['RINGBROKER_SOCKET']), found)
    expect(found['LLAMA_ARG_FIT_TARGET'] == '32', found)
    # brokerctl keeps the value that the user has set.
    found = of('--vram=32MiB', env={**broker.env, 'LLAMA_ARG_FIT_TARGET': '5'})
    expect(found['LLAMA_ARG_FIT_TARGET'] == '5', found)
    # --wait applies to the program's allocations, too.
    expect('RINGBROKER_LEASE_WAIT' not in found, found)
    found = of('--vram=32MiB', '--wait=1.5')
    expect(found['RINGBROKER_LEASE_WAIT'] == '1500ms', found)
    found = of('--vram=32MiB', '--wait=1h', env={**broker.env, 'RINGBROKER_LEASE_WAIT': '0s'})
    expect(found['RINGBROKER_LEASE_WAIT'] == '0s', found)
    expect('RINGBROKER_LEASE_PRIORITY' not in found, found)
    found = of('--vram=32MiB', '--priority=background')
    expect(found['RINGBROKER_LEASE_PRIORITY'] == 'background' and 'RINGBROKER_LEASE_MAX_PART' not in found, found)
    found = of('--vram=32MiB', '--max-part=1.5ms')
    expect(found['RINGBROKER_LEASE_MAX_PART'] == '1500us', found)
    expect('RINGBROKER_LEASE_SLEEP' not in found and 'GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM' not in found, found)
    found = of('--vram=32MiB', '--sleep')
    expect(found['GGML_VK_DISABLE_HOST_VISIBLE_VIDMEM'] == '1', found)
    expect(found['RINGBROKER_LEASE_SLEEP'] == '1' and 'RINGBROKER_LEASE_PRIORITY' not in found, found)
    # A program with a share shares the device, with the priority of its tenant's section, or that which the user has set.
    found = of('--vram=32MiB', '--share=25')
    expect(found['RINGBROKER_LEASE_SHARE'] == '25' and 'RINGBROKER_LEASE_PRIORITY' not in found, found)
    found = of('--vram=32MiB', '--share=25', env={**broker.env, 'RINGBROKER_LEASE_PRIORITY': 'urgent'})
    expect(found['RINGBROKER_LEASE_PRIORITY'] == 'urgent', found)
    _, err = run(broker, '--vram=8MiB', 'true', status=NOT_RUN, env={**broker.env, 'RINGBROKER_LEASE_SHARE': 'half'})
    expect('RINGBROKER_LEASE_SHARE is a number from 1 to 10000, not half' in err, err)
    # Without the layer brokerctl sets none of these variables.
    found = of('--vram=32MiB', '--no-layer', env=environment(folder, XDG_DATA_DIRS='/nowhere'))
    expect(not [name for name in found if not name.startswith('XDG')], found)


def check_service_manager(broker):
    """Variables that name brokerctl as the process for sockets and a watchdog then name the program."""
    def names(program):
        start = f'LISTEN_PID={program} WATCHDOG_PID={program} exec "$0" "$@"'
        env = dict(broker.env, LISTEN_FDS='1')
        process = subprocess.run(
            ['sh', '-c', start, CTL, '--socket', broker.socket, 'exec', '--vram=8MiB', '--', 'sh', '-c',
             'echo $$ $LISTEN_PID $WATCHDOG_PID $LISTEN_FDS'], stdout=subprocess.PIPE, text=True,
            env=env, timeout=LIMIT, check=True)
        return process.stdout.split()

    found = names('$$')
    expect(found == [found[0]] * 3 + ['1'], found)
    # Variables that name another process stay as they are.
    found = names('1')
    expect(found[1:] == ['1', '1', '1'], found)


def check_layer(broker, folder):
    def checked(**more):
        result = subprocess.run([CTL, '--socket', broker.socket, 'check', '--json'], check=False,
                                stdout=subprocess.PIPE, text=True, timeout=LIMIT,
                                env=environment(folder, **more))
        return [entry for entry in map(json.loads, result.stdout.splitlines())
                if entry['check'] == 'vulkan-layer'][0]

    def refused(word, health='warn', **more):
        _, err = run(broker, '--vram=8MiB', '--', 'touch', os.path.join(folder, 'was-run'),
                     status=NOT_RUN, env=environment(folder, **more))
        expect(word in err and '--no-layer' in err, err)
        found = checked(**more)
        expect(found['health'] == health and word in found['text'] and
               bool(found['mend']) == (health == 'warn'), found)
        expect(not os.path.exists(os.path.join(folder, 'was-run')), 'it ran')

    # HOME and /etc of the machine may have a manifest.
    nothing = {'XDG_DATA_DIRS': '/nowhere', 'HOME': '/nowhere'}
    # Nothing that was not installed needs repair.
    refused('not installed', 'skip', **nothing)
    expect(checked()['health'] == 'ok', checked())
    refused('RINGBROKER_VULKAN_LEASE_DISABLE', RINGBROKER_VULKAN_LEASE_DISABLE='1')
    refused('VK_LOADER_LAYERS_DISABLE', VK_LOADER_LAYERS_DISABLE='~implicit~')
    refused('VK_LOADER_LAYERS_DISABLE', VK_LOADER_LAYERS_DISABLE='other,*ringbroker*')
    run(broker, '--vram=8MiB', 'true', env=environment(
        folder, VK_LOADER_LAYERS_DISABLE='*ringbroker*', VK_LOADER_LAYERS_ALLOW='*LEASE'))
    run(broker, '--vram=8MiB', 'true', env=environment(folder, VK_LOADER_LAYERS_DISABLE='*other*'))
    # The library that the manifest names is missing.
    broken = os.path.join(folder, 'broken', 'vulkan', 'implicit_layer.d')
    os.makedirs(broken)
    with open(MANIFEST, encoding='utf-8') as file:
        about = json.load(file)
    about['layer']['library_path'] = './gone.so'
    with open(os.path.join(broken, 'x.json'), 'w', encoding='utf-8') as file:
        json.dump(about, file)
    refused('gone.so', **{**nothing, 'XDG_DATA_DIRS': os.path.join(folder, 'broken')})
    run(broker, '--vram=8MiB', '--no-layer', 'true', env=environment(folder, **nothing))


# Print outside of handlers: a handler that interrupts a print cannot print.
COUNTING = '''
import os, signal, sys
numbers = {getattr(signal, name) for name in sys.argv[1:]}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print('ready', os.getpid(), flush=True)
while numbers:
    print(signal.Signals(signal.sigwait(numbers)).name, flush=True)
signal.pause()
'''


def check_signals(broker):
    names = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGCONT',
             'SIGALRM', 'SIGTSTP']
    program = Exec(broker, '--vram=8MiB', '--', sys.executable, '-c', COUNTING, *names)
    pid = int(program.line().split()[1])
    for name in names:
        program.process.send_signal(getattr(signal, name))
        line = program.line()
        expect(line == name, name, 'did not arrive:', line, program.process.poll())
    os.kill(pid, signal.SIGKILL)
    program.end(128 + signal.SIGKILL)
    # This program leaves SIGTERM at its default action.
    program = Exec(broker, '--vram=8MiB', '--', sys.executable, '-c', COUNTING)
    program.line()
    program.process.terminate()
    program.end(128 + signal.SIGTERM)


# A shell with job control, in a terminal: it prints when its job stops, and continues the job.
SHELL = '''
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    status = os.waitpid(job, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        break
    print('stopped', flush=True)
    os.killpg(job, signal.SIGCONT)
print('ended', os.waitstatus_to_exitcode(status), flush=True)
'''


def check_terminal(broker):
    """A signal of the terminal arrives once; a stopped program is seen as stopped, and continues."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, '-c', SHELL, CTL, '--socket', broker.socket,
                                   'exec', '--vram=8MiB', '--', sys.executable, '-c', COUNTING,
                                   'SIGINT', 'SIGUSR1'], broker.env)
    seen = ''

    def read_until(count, what):
        nonlocal seen
        while len(re.findall(what, seen)) < count:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                data = b''
            expect(data, 'it ended', what, seen)
            seen += data.decode()

    read_until(1, r'ready \d+\r?\n')
    program = int(re.search(r'ready (\d+)', seen)[1])
    for i in range(1, 6):
        os.write(terminal, b'\x03')
        read_until(i, 'SIGINT')
    os.write(terminal, b'\x1a')
    read_until(1, 'stopped')
    os.write(terminal, b'\x03')
    read_until(6, 'SIGINT')
    # A signal that was sent twice would have arrived before SIGUSR1.
    with open(f'/proc/{program}/stat', encoding='utf-8') as file:
        brokerctl = int(file.read().rpartition(')')[2].split()[1])
    os.kill(brokerctl, signal.SIGUSR1)
    read_until(1, 'SIGUSR1')
    expect(len(re.findall('SIGINT', seen)) == 6, 'twice', seen)
    os.kill(program, signal.SIGKILL)
    read_until(1, r'ended \d+')
    expect(f'ended {128 + signal.SIGKILL}' in seen, seen)
    os.close(terminal)
    os.waitpid(pid, 0)


def check_brokertop(broker, lease):
    """brokertop shows the same figures of the lease, in its view and as JSON."""
    def top(*arguments):
        done = subprocess.run([TOP, '--socket', broker.socket, '--once', *arguments], check=True,
                              timeout=LIMIT, env={**broker.env, 'LC_ALL': 'C'},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        return done.stdout

    seen, = json.loads(top('--json'))['leases']
    expect(seen['tenant'] > 0, seen)
    rates = {'had_part', 'wait_part', 'submissions_per_s', 'parts_per_s'}
    for name in set(seen) - {'tenant', 'opened_ns', 'seen_bytes'} - rates:
        expect(seen[name] == lease[name], name, seen, lease)
    expect(abs(seen['opened_ns'] - lease['opened_ns']) < 10 ** 9, seen, lease)
    text = top('--view=leases', '--size=250x20')
    row, = [line.split() for line in text.splitlines() if ' lease-member ' in line]
    expect(row[:4] == [str(lease['lease']), 'default', 'lease-member', str(lease['pid'])], text)
    expect('32 MiB' in ' '.join(row) and '20 MiB' in ' '.join(row) and '11 MiB' in ' '.join(row), text)


def in_terminal(broker, *arguments):
    """Return what brokerctl exec writes to a terminal at its standard error."""
    ours, theirs = pty.openpty()
    subprocess.run([CTL, '--socket', broker.socket, 'exec', *arguments], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=theirs, env=broker.env, check=False, timeout=LIMIT)
    os.close(theirs)
    said = os.read(ours, 4096).decode()
    os.close(ours)
    return said


def check_use(broker, folder):
    report = os.path.join(folder, 'report.json')
    member = Exec(broker, '--vram=32MiB', f'--report={report}', '--', MEMBER, '20', '11', '5')
    member.expect_ready()
    wait_for(lambda: [entry['used_bytes'] for entry in leases(broker)] == [11 * MIB], 'no use')
    lease, = leases(broker)
    expect(lease['granted_bytes'] == 32 * MIB and lease['credited_bytes'] == 20 * MIB, lease)
    # The members are brokerctl, which runs the program, and MEMBER, which joined the lease.
    expect(lease['members'] == 2 and lease['pid'] == member.process.pid, lease)
    expect(lease['name'] == os.path.basename(MEMBER) and lease['tenant'] == 'default', lease)
    expect(lease['device'] == 1 and lease['objects'] == 1, lease)
    text = ctl(broker, 'leases')
    expect('lease-member' in text and '20 MiB' in text and 'GPU1' in text, text)
    expect(ctl(broker, 'leases', '--no-header', '--sort=-used').count('\n') == 1, 'rows')
    with open(MANUAL, encoding='utf-8') as file:
        part = re.search(r'^\.It Dq lease\n(.*?)^\.(?:It|El)', file.read(), re.DOTALL | re.MULTILINE)
    described = set(re.findall(r'[a-z_]+', ' '.join(
        line for line in part[1].splitlines() if line.startswith('.Va ')))) if part else set()
    expect(set(lease) - {'type'} <= described, 'brokerctl(1) has not', set(lease) - described)

    if TOP:
        check_brokertop(broker, lease)

    # The new size is below the drawn bytes: the lease keeps those.
    number = str(lease['lease'])
    said = ctl(broker, 'lease', number, '--vram=8MiB')
    expect(said == f'lease {number} has 20 MiB, and gives back 12 MiB once its programs free it; none of it can be moved\n', said)
    wait_for(lambda: leases(broker)[0]['shrinking'], 'not shrinking')
    expect('shrinking' in ctl(broker, 'leases'), 'not said')
    expect(ctl(broker, 'lease', number, '--vram=32MiB') == f'lease {number} has 32 MiB\n', 'resize')
    for bad in ('33MiB', '1GiB'):
        ctl(broker, 'lease', number, '--vram', bad, status=FAILED)
    for bad in ([number], [number, '--vram=0'], [number, '--vram=x'], ['0', '--vram=1MiB'],
                ['x', '--vram=1MiB']):
        ctl(broker, 'lease', *bad, status=USAGE)
    ctl(broker, 'lease', '1', '--vram=1MiB', status=FAILED)

    _, err = member.end(5)
    expect('11 MiB' in err and '20 MiB' in err and '32 MiB' in err, err)
    with open(report, encoding='utf-8') as file:
        about = json.load(file)
    expect(about['peak_bytes'] == 11 * MIB and about['peak_credited_bytes'] == 20 * MIB, about)
    expect(about['granted_bytes'] == 32 * MIB and about['status'] == 5, about)
    expect(about['type'] == 'exec' and about['tenant'] == 'default', about)
    wait_for(lambda: leases(broker) == [], 'it is left')

    # A lease that grew shrinks again when its program ends.
    member = Exec(broker, '--vram=8MiB', '--max=32MiB', f'--report={report}', '--', 'sh', '-c',
                  '"$0" 20 11 5 </dev/null; read x', MEMBER)
    member.expect_ready()
    wait_for(lambda: [entry['granted_bytes'] for entry in leases(broker)] == [8 * MIB], 'not small')
    _, err = member.end(1)
    expect('(20 MiB drawn) of 20 MiB' in err, err)
    with open(report, encoding='utf-8') as file:
        about = json.load(file)
    expect(about['granted_bytes'] == 20 * MIB, about)
    wait_for(lambda: leases(broker) == [], 'it is left')


def check_vulkan(broker, folder):
    """An unmodified program gets at most its lease. Its usage is known to the byte after a refusal, and
    after its device was destroyed."""
    report = os.path.join(folder, 'vulkan.json')
    # The layer keeps its lease until the process has ended.
    sanitizer = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'

    def start(**options):
        program = Exec(broker, '--vram=16MiB', f'--report={report}', '--', 'env',
                       f'ASAN_OPTIONS={sanitizer}', VULKAN_CLIENT, **options)
        expect(tell(program, 'device') == 'device 0: result=0', 'no device')
        return program

    def tell(program, command):
        program.process.stdin.write(command + '\n')
        program.process.stdin.flush()
        return program.line()

    def await_use(used, peak, objects, refused):
        wanted = {'used_bytes': used, 'peak_bytes': peak, 'objects': objects, 'refused': refused}
        wait_for(lambda: wanted.items() <= leases(broker)[0].items(),
                 f'the lease is not as {wanted}')

    program = start()
    answer = tell(program, f'alloc {MIB} 100')
    found = re.fullmatch(r'alloc: n=(\d+) result=(-?\d+)', answer)
    expect(found and found[1] == '16' and found[2] == '-2', answer)
    lease, = leases(broker)
    expect(lease['granted_bytes'] == 16 * MIB and lease['members'] == 2, lease)
    await_use(16 * MIB, 16 * MIB, 16, 1)
    tell(program, 'free 3')
    tell(program, 'free 4')
    # For an allocation above the lease's maximum the layer asks for no credit.
    tell(program, f'alloc {17 * MIB}')
    await_use(14 * MIB, 16 * MIB, 14, 2)
    tell(program, 'free-all')
    tell(program, 'destroy')
    await_use(0, 16 * MIB, 0, 2)
    _, err = program.end()
    expect('at most 16 MiB in use (16 MiB drawn) of 16 MiB, 2 allocations refused' in err, err)

    # The allocations fit in one chunk of credit: the layer asks for nothing, but the report is complete.
    program = start()
    tell(program, 'alloc 4096 3')
    tell(program, 'free-all')
    tell(program, 'alloc 4096 2')
    tell(program, 'destroy')
    await_use(0, 3 * 4096, 0, 0)
    program.end()
    with open(report, encoding='utf-8') as file:
        about = json.load(file)
    expect(about['peak_bytes'] == 3 * 4096 and about['refused'] == 0, about)
    wait_for(lambda: leases(broker) == [], 'it is left')

    # The report is also complete if the program does not destroy its device.
    program = start()
    tell(program, 'alloc 4096 3')
    tell(program, 'free-all')
    program.end()
    with open(report, encoding='utf-8') as file:
        about = json.load(file)
    expect(about['peak_bytes'] == 3 * 4096, about)

    # The last report waits for a broker that is stopped.
    program = start()
    tell(program, 'alloc 4096')
    broker.process.send_signal(signal.SIGSTOP)
    try:
        tell(program, 'alloc 4096 3')
        tell(program, 'free-all')
        program.process.stdin.close()
        wait_for(lambda: not children(program.process.pid), 'the program does not end')
    finally:
        broker.process.send_signal(signal.SIGCONT)
    program.process.stdin = None
    program.end()
    with open(report, encoding='utf-8') as file:
        about = json.load(file)
    expect(about['peak_bytes'] == 4 * 4096, about)

    # The wait is bounded, and the message says that the figures may be incomplete.
    program = start(timeout_s=1)
    broker.process.send_signal(signal.SIGSTOP)
    try:
        _, err = program.end()
    finally:
        broker.process.send_signal(signal.SIGCONT)
    expect('does not answer' in err and 'last known' in err, err)
    wait_for(lambda: leases(broker) == [], 'it is left')

    program = start()
    tell(program, 'alloc 4096 5')
    await_use(5 * 4096, 5 * 4096, 5, 0)
    tell(program, 'free-all')
    await_use(0, 5 * 4096, 0, 0)
    program.end()
    wait_for(lambda: leases(broker) == [], 'it is left')


def facts_of(broker, lease):
    """Return what brokerctl why says of a lease's memory, after the sentence that it does not share the device."""
    answer, = objects(ctl(broker, 'why', 'lease', str(lease['lease']), '--json'))
    expect(answer['lease'] == lease['lease'] and 'gives them a priority' in answer['facts'][0], answer)
    return answer['facts'][1:]


def check_growth(broker):
    """With --wait the program's allocation waits for the lease to grow, too."""
    holder = Exec(broker, '--vram=40MiB', '--', MEMBER, '40', '40')
    holder.expect_ready()
    for wait, allocated in ([], 'n=0 result=-2'), (['--wait=10min'], 'n=1 result=0'):
        program = Exec(broker, '--vram=8MiB', '--max=40MiB', *wait, '--', 'env',
                       'ASAN_OPTIONS=detect_leaks=0', VULKAN_CLIENT)
        program.process.stdin.write(f'device\nalloc {30 * MIB}\n')
        program.process.stdin.flush()
        expect(program.line() == 'device 0: result=0', 'no device')
        if wait:
            wait_for(lambda: [lease for lease in leases(broker) if lease['waiting']],
                     'no waiter is counted')
            waiter, = [lease for lease in leases(broker) if lease['waiting']]
            facts = facts_of(broker, waiter)
            expect(len(facts) == 1 and re.fullmatch(r'it waits for [0-9.]+ MiB of device memory now, and has 8 MiB', facts[0]),
                   facts)
            holder.end()
        expect(program.line() == f'alloc: {allocated}', wait)
        if not wait:
            wait_for(lambda: [lease for lease in leases(broker) if lease['refused']], 'no refusal is counted')
            refused, = [lease for lease in leases(broker) if lease['refused']]
            facts = facts_of(broker, refused)
            expect(facts == ['1 of its allocations was refused: it has 8 MiB, and may have at most 40 MiB'], facts)
        program.end()
    wait_for(lambda: leases(broker) == [], 'it is left')


def check_counts(broker, n, granted, n_waiting, text):
    """brokerctl status counts leases and waiters."""
    def counts():
        status, = objects(ctl(broker, 'status', '--json'))
        return [status[name] for name in ('leases', 'leases_granted_bytes', 'leases_waiting')]

    wait_for(lambda: counts() == [n, granted, n_waiting], f'status does not count {n} leases')
    line, = [line for line in ctl(broker, 'status').splitlines() if line.startswith('leases')]
    expect(line == f'leases   {text}', line)


def check_two_leases(broker):
    """Two leases share the device if both fit; else the second is refused, or with --wait waits until
    the first ends."""
    both = [Exec(broker, '--vram=24MiB', '--', MEMBER, '24', '24') for _ in range(2)]
    for member in both:
        member.expect_ready()
    for member in both:
        member.end()

    both = [Exec(broker, '--vram=40MiB', '--', MEMBER, '40', '40') for _ in range(2)]
    lines = [member.line() for member in both]
    expect(sorted(lines) == ['', 'ready'], lines)
    _, err = both[lines.index('')].end(NOT_RUN)
    expect(all(word in err for word in ('default', '40 MiB', '24 MiB')), err)
    first = both[lines.index('ready')]
    # The request accepts a smaller lease.
    run(broker, '--vram=40MiB', '--min=20MiB', 'true')
    _, err = run(broker, '--vram=40MiB', '--wait=500ms', 'true', status=NOT_RUN)
    expect('default' in err and 'waits' not in err, err)
    _, err = run(broker, '--vram=40MiB', '--wait=500ms', '--verbose', 'true', status=NOT_RUN)
    expect(err.count('no room for a lease of 40 MiB yet: brokerctl waits for it, at most 500 ms') == 1, err)
    # No message about waiting appears if the lease is granted or refused at once.
    for options, status in ((('--vram=8MiB',), OK), (('--vram=8GiB',), NOT_RUN)):
        _, err = run(broker, *options, '--wait=5min', '--verbose', 'true', status=status)
        expect('waits for' not in err, err)
    expect('brokerctl waits for it' in in_terminal(broker, '--vram=40MiB', '--wait=500ms', 'true'),
           'a terminal is not told')
    second = Exec(broker, '--vram', '40MiB', '--wait', '5min', '--', MEMBER, '40', '40')
    wait_for(lambda: ctl(broker, 'sessions', '--no-header').count('brokerctl') >= 2, 'not there')
    expect(second.process.poll() is None, 'it did not wait')
    check_counts(broker, 2, 40 * MIB, 1, '2, 40 MiB granted, 1 waits for room')
    first.end()
    second.expect_ready()
    check_counts(broker, 1, 40 * MIB, 0, '1, 40 MiB granted')
    second.end()
    check_counts(broker, 0, 0, 0, '0')


def check_many(broker):
    """Every listing has all leases, although the broker writes only the first records of a new page at
    once."""
    holders = [Exec(broker, '--vram=1MiB', '--no-layer', '--quiet', '--', 'sh', '-c',
                    'echo ready; read x; exit 0') for _ in range(20)]
    for holder in holders:
        holder.expect_ready()
    for _ in range(20):
        listed = leases(broker)
        expect(len(listed) == len(holders), len(listed), 'leases are listed')
        status, = objects(ctl(broker, 'status', '--json'))
        expect(status['leases'] == len(holders), status['leases'], 'leases are counted')
    if TOP:
        seen = subprocess.run([TOP, '--socket', broker.socket, '--once', '--json'], check=True, timeout=LIMIT,
                              env=broker.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
        expect(len(json.loads(seen)['leases']) == len(holders), seen)
    for holder in holders:
        holder.end()
    wait_for(lambda: leases(broker) == [], 'they are left')


def check_kills(broker):
    # The program is killed: its lease ends, and its status is known.
    member = Exec(broker, '--vram=8MiB', '--', MEMBER, '8', '8')
    member.line()
    own = member.process.pid
    with open(f'/proc/{own}/task/{own}/children', encoding='ascii') as file:
        os.kill(int(file.read()), signal.SIGKILL)
    member.end(128 + signal.SIGKILL)
    wait_for(lambda: leases(broker) == [], 'the lease is left')

    # brokerctl is killed: its program keeps the lease.
    member = Exec(broker, '--vram=8MiB', '--', MEMBER, '8', '8')
    member.line()
    member.process.kill()
    member.process.wait(LIMIT)
    wait_for(lambda: [entry['members'] for entry in leases(broker)] == [1], 'the lease is gone')
    member.process.stdin.close()
    wait_for(lambda: leases(broker) == [], 'the lease is left')
    member.process.stdout.close()
    member.process.stderr.close()

    # The program leaves a process behind.
    left = Exec(broker, '--vram=8MiB', '--', 'sh', '-c', f'exec 3<&0; {MEMBER} 8 8 <&3 & wait')
    left.expect_ready()
    left.process.terminate()
    expect(left.process.wait(LIMIT) == 128 + signal.SIGTERM, left.process.returncode)
    wait_for(lambda: [entry['members'] for entry in leases(broker)] == [1], 'the lease is gone')
    left.process.stdin.close()
    wait_for(lambda: leases(broker) == [], 'the lease is left')
    left.process.stdout.close()
    left.process.stderr.close()


def check_restart(broker, folder):
    """The broker is killed: the lease comes back, whether a program uses it or not."""
    program = Exec(broker, '--verbose', '--vram=24MiB', '--', 'sh', '-c', 'read x; exit 9')
    wait_for(lambda: len(leases(broker)) == 1, 'no lease')
    broker.stop(signal.SIGKILL)
    os.unlink(broker.socket)
    time.sleep(0.1)
    expect(program.process.poll() is None, 'it ended with the broker')
    broker = start(folder)
    wait_for(lambda: [entry['restored'] for entry in leases(broker)] == [True], 'not restored')
    lease, = leases(broker)
    expect(lease['granted_bytes'] == 24 * MIB and lease['members'] == 1, lease)
    _, err = program.end(9)
    expect('came back' in err, err)
    wait_for(lambda: leases(broker) == [], 'the lease is left')

    # The next broker learns the usage of a program that makes no more requests.
    sanitizer = os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
    program = Exec(broker, '--vram=16MiB', '--', 'env', f'ASAN_OPTIONS={sanitizer}', VULKAN_CLIENT)
    for command in ('device', 'alloc 4096 5'):
        program.process.stdin.write(command + '\n')
        program.process.stdin.flush()
        program.line()
    wait_for(lambda: [entry['used_bytes'] for entry in leases(broker)] == [5 * 4096], 'no use')
    broker.stop(signal.SIGKILL)
    os.unlink(broker.socket)
    broker = start(folder)
    wait_for(lambda: [(entry['restored'], entry['used_bytes'], entry['members'])
                      for entry in leases(broker)] == [(True, 5 * 4096, 2)], 'it does not know')
    program.process.stdin.write('free-all\n')
    program.end()
    wait_for(lambda: leases(broker) == [], 'the lease is left')

    # No broker listens.
    broker.stop()
    _, err = run(broker, '--vram=8MiB', 'true', status=NOT_RUN)
    expect(broker.socket in err, err)


def start(folder):
    broker = Broker(folder, '--gpu=software', '--device-memory=64MiB')
    broker.env = environment(folder)
    # A failed test leaves no broker behind.
    atexit.register(broker.process.kill)
    return broker


def main():
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, 'data', 'vulkan', 'implicit_layer.d')
        os.makedirs(place)
        shutil.copy(MANIFEST, place)
        broker = start(folder)
        if len(objects(ctl(broker, 'devices', '--json'))) < 2:
            print('no software Vulkan device here')
            sys.exit(77)
        check_status(broker)
        check_environment(broker, folder)
        check_service_manager(broker)
        check_layer(broker, folder)
        check_signals(broker)
        check_terminal(broker)
        check_use(broker, folder)
        check_vulkan(broker, folder)
        check_growth(broker)
        check_two_leases(broker)
        check_many(broker)
        check_kills(broker)
        check_restart(broker, folder)


main()
