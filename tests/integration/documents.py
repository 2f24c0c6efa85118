#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tutorial and the examples agree with each other and with the library.

    documents.py ROOT BUILD BROKERD DATA PARTS STATS_CLIENT PROGRAM... -- CC...

- Each C listing of doc/tutorial.md is a range of lines of the file that the text before it names.
- Each program of doc/examples builds without warnings, by the command line in its comment, against the build
  tree as HACKING.md says. It fails with one line where no broker listens, and runs with a private broker.
- Each program of doc/man3, the section EXAMPLES of a manual page, compiles without warnings.
- Programs replace bytes of names that could steer a terminal, and print the library's sentence about a failure.
- Outputs in the tutorial and in EXAMPLES are those that the programs print, but for NOT_STABLE.
- The log in operating.md is that of a first start, and its status line that of a service. The defaults and the gain
  in placement.md are those of brokerd and of brokersim.
- The tables of doc/operators.md are those that brokerctl reports.
- Every command of every document runs, or is listed with the reason in commands.py.

PARTS: "vulkan" if brokerd can use a software Vulkan device, which lease.c needs; "metrics" if it serves metrics.
DATA has real models; a missing model is not tried. PROGRAM: brokerctl and the other installed programs. Exit
status 77 without pkg-config.
"""
import difflib
import functools
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import commands
import onnxfile as onnx

from started import LIMIT, Broker, expect, start, start_broker, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc'))
import operators

ROOT, BUILD, BROKERD, DATA = map(os.path.abspath, sys.argv[1:5])
PARTS, CLIENT = sys.argv[5], os.path.abspath(sys.argv[6])
PROGRAMS = [os.path.abspath(program) for program in sys.argv[7:sys.argv.index('--')]]
CC = sys.argv[sys.argv.index('--') + 1:]
BROKERCTL, BROKERSIM = (next(program for program in PROGRAMS if program.endswith(name))
                        for name in ('/brokerctl', '/brokersim'))
FOLDER = os.path.join(ROOT, 'doc/examples')
MNIST = os.path.join(DATA, 'real/mnist-cnn/mnist.onnx')
HAVE_ONNX = os.path.exists(os.path.join(BUILD, 'meson-uninstalled/ringbroker-onnx-uninstalled.pc'))
BLOCK = re.compile(r'^```(\w*)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMAND_LINE = re.compile(r'\bcc ([\w-]+)\.c (?:-o \1 )?\$\(pkg-config --cflags --libs ([\w -]+)\)')
# Parts of the tutorial's outputs that depend on the machine.
NOT_STABLE = [(r'ringbroker \d+\.\d+\.\d+', 'ringbroker VERSION'), (r'\d+ workers?', 'N workers'),
              (r'\d+ late', 'N late')]
# Arguments, exit status, and a pattern of the whole output of each example, with the first broker.
EXAMPLES = {
    'batch': ([], 0, '7900 rows in 16 tasks, 0 elements wrong\n'),
    'budgets': (['64'], 0, r'refused: no room for an arena of 64 MiB: tenant web .*arena-bytes-max.*\n'
                           r'the cache has 16 MiB\ntenant web\nhost memory: \d+ KiB of .*\n'
                           r'arenas: 16384 KiB of 32768 KiB\n'
                           r'device 0: needs 0 KiB, may have 0 KiB: resident\n'
                           r'0 tasks ran elsewhere for lack of memory\n'),
    'cancel': ([], 0, 'late task: Success, deadline missed\nafter 5 ms: not completed\n'
                      'cancel the task behind: Success; the task: Operation canceled\n'
                      'cancel the long task: Success; the task: Operation canceled\n'),
    'event-loop': ([], 0, '1000 tasks, 0 wrong, status 0\n'),
    'lease': ([], 1, 'no lease without a GPU: .*\n'),
    'lease-sleep': ([], 1, 'the broker has no such device.*\n'),
    'onnx-model': (['sum.onnx'], 0, 'sum: 1 2 3 4 ...\n'),
    'reconnect': None,
    'state': ([], 0, 'after 4 steps the state is 10\n'),
    'statistics': ([], 0, r'tenant web: 100 tasks more, 0 errors more\n(\d+ tasks placed by [\w-]+\n)+'
                          r'(half of \d+ tasks took less than \d+ us\n)?'
                          r'(the last logged task ran on device 0 in \d+ us: [\w-]+\n)?'),
}
LEASE = (r'opened: granted 8 MiB, in credit 0 MiB, at most 16 MiB\n'
         r'allocated: granted 8 MiB, in credit 6 MiB, at most 16 MiB\nrefused: tenant web: .*\n'
         r'freed: granted 8 MiB, in credit 0 MiB, at most 16 MiB\n')
# Code that takes the place of functions of the library or calls a function of an example.
MADE_PAGE = r'''
#include <ringbroker.h>
#include <ringbroker/stats.h>
#include <stddef.h>
static struct {
	struct rbk_stats_header page;
	struct rbk_stats_tenant tenant;
	struct rbk_stats_plan plan;
	struct rbk_stats_refused refused;
} made = {
	.plan = {.state = RBK_STATS_PLAN_LIVE, .name = "\033[31mnet\x9b"},
	.refused = {.sequence = 1, .field = "refs", .reason = "no \033[31mx"},
};
#define SECTION(member) {.offset = offsetof(typeof(made), member), .stride = sizeof(made.member), .count = 1}
int rbk_stats_map(struct rbk *rbk, unsigned int whose, uint32_t tenant, struct rbk_stats_view *ret, struct rbk_error *error)
{
	*ret = (struct rbk_stats_view){.page = &made.page, .sections = {
		[RBK_STATS_SECTION_TENANTS] = SECTION(tenant),
		[RBK_STATS_SECTION_PLANS] = SECTION(plan),
		[RBK_STATS_SECTION_REFUSED] = SECTION(refused),
	}};
	return 0;
}
void rbk_stats_unmap(struct rbk_stats_view *view) {}
'''
PRINT_PLANS = '''
void print_plans(const struct rbk_stats_view *view);
int main(void)
{
	struct rbk_stats_view view;
	rbk_stats_map(NULL, RBK_STATS_OWN, 0, &view, NULL);
	print_plans(&view);
}
'''
PLAN_OF = '''
#include <ringbroker/onnx.h>
struct rbk_plan *plan_of(struct rbk *rbk, struct rbk_onnx *model);
int main(int argc, char **argv)
{
	struct rbk_onnx *model;
	return rbk_onnx_load(argv[1], &model, NULL) || plan_of(NULL, model);
}
'''
NO_TENANT = '''
#include <errno.h>
#include <ringbroker.h>
#include <stdio.h>
int rbk_tenant(struct rbk *rbk, struct rbk_tenant *ret) { return -ECONNRESET; }
int rbk_get_tenant(struct rbk *rbk, struct rbk_tenant *ret, struct rbk_error *error)
{
	sprintf(error->text, "no tenant today");
	return -ECONNRESET;
}
'''


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return file.read()


def check_listings(text):
    """Return the names of the files of which the text has listings."""
    names = set()
    for match in BLOCK.finditer(text):
        if match.group(1) != 'c':
            continue
        said = re.findall(r'^From `([\w-]+\.c)`:$', text[:match.start()], re.MULTILINE)
        expect(said, 'tutorial.md: no "From `FILE`:" before the listing', match.group(2))
        expect('\n' + match.group(2) in '\n' + read('doc/examples/' + said[-1]),
               'tutorial.md: this listing is not in', said[-1] + ':\n' + match.group(2))
        names.add(said[-1])
    return names


def consoles(text):
    """Return the commands of the blocks "console", and the output that is shown of each."""
    shown = []
    for language, block in BLOCK.findall(text):
        for line in block.splitlines(keepends=True) if language == 'console' else ():
            if line.startswith('$ '):
                shown.append([line[2:-1], ''])
            else:
                shown[-1][1] += line
    return shown


@functools.cache
def pkg_config(arguments):
    env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(BUILD, 'meson-uninstalled'))
    return subprocess.run(['pkg-config', *arguments.split()], env=env, stdout=subprocess.PIPE,
                          check=True).stdout.decode().split()


def build(program, packages, *sources, **options):
    result = subprocess.run([*CC, '-std=gnu17', *sources, '-o', program, f'-Wl,-rpath,{BUILD}/libclient',
                             f'-Wl,-rpath,{BUILD}/libclient/onnx', *pkg_config('--cflags --libs ' + packages)], check=False, **options)
    expect(result.returncode == 0, os.path.basename(program), 'does not build')


def compile_all(names, folder):
    """Build the programs into a folder, by the command lines in their comments."""
    for name in names:
        line = COMMAND_LINE.search(read(f'doc/examples/{name}.c'))
        expect(line and line.group(1) == name, f'{name}.c: no comment with its cc command line')
        build(os.path.join(folder, name), line.group(2), '-std=c17', '-Wall', '-Wextra', '-Werror',
              os.path.join(FOLDER, name + '.c'))


def compile_pages():
    """Compile the examples of manual pages, which are functions or small programs."""
    flags = pkg_config('--cflags ringbroker ringbroker-onnx' if HAVE_ONNX else '--cflags ringbroker')
    names = sorted(name for name in os.listdir(os.path.join(ROOT, 'doc/man3'))
                   if HAVE_ONNX or not name.startswith('rbk-onnx'))
    expect(names, 'doc/man3 is empty')
    paths = [os.path.join(ROOT, 'doc/man3', name) for name in names]
    result = subprocess.run([*CC, '-std=c17', '-Wall', '-Wextra', '-Werror', '-fsyntax-only', *flags, *paths],
                            check=False)
    expect(result.returncode == 0, 'an example of doc/man3 does not compile')


def run(folder, socket, command, **options):
    """Return status and output of a command, which is in the folder."""
    env = dict(os.environ, RINGBROKER_SOCKET=socket, LC_ALL='C')
    result = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors='backslashreplace', timeout=LIMIT, check=False,
                            **options)
    return result.returncode, result.stdout


def stable(text):
    for pattern, name in NOT_STABLE:
        text = re.sub(pattern, name, text)
    return text


def check_tutorial(text, folder, broker):
    """Run the tutorial's commands in order. A program before a brokerctl stays connected meanwhile."""
    shown = consoles(text)
    env = dict(os.environ, RINGBROKER_SOCKET=broker.socket, LC_ALL='C')
    for i, (command, output) in enumerate(shown):
        if command.startswith('cc '):
            name = command.split()[1][:-2]
            expect(COMMAND_LINE.fullmatch(command) and f'-o {name} ' in command and
                   os.path.exists(os.path.join(folder, name)), 'tutorial.md: not a command line:', command)
            continue
        if command.startswith('brokerctl '):
            continue
        process = start([command], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True)
        found = ''
        if i + 1 < len(shown) and shown[i + 1][0].startswith('brokerctl '):
            found = ''.join(process.stdout.readline() for _ in output.splitlines())
            status, said = run(folder, broker.socket, [BROKERCTL, *shown[i + 1][0].split()[1:]])
            expect(status == 0 and said.partition(':')[0] == shown[i + 1][1].partition(':')[0],
                   shown[i + 1][0], 'ended with', status, said)
            lines = re.findall(r'^  - .*', shown[i + 1][1], re.MULTILINE)
            expect(lines and set(lines) <= set(said.splitlines()), shown[i + 1][0], 'does not say', lines, 'but', said)
        found += process.communicate('\n', LIMIT)[0]
        expect(process.returncode == 0, command, 'ended with', process.returncode, found)
        expect(stable(found) == stable(output), f'tutorial.md shows of {command}:\n{output}and it prints:\n{found}')


def check_examples(names, folder, broker):
    for name in names:
        if EXAMPLES[name] is None:
            continue
        arguments, expected_status, expected = EXAMPLES[name]
        status, output = run(folder, broker.socket, ['./' + name, *arguments])
        expect(status == expected_status and re.fullmatch(expected, output), name, 'ended with', status, output)
    if 'onnx-model' in names and os.path.exists(MNIST):
        status, output = run(folder, broker.socket, ['./onnx-model', MNIST])
        expect(status == 0 and re.fullmatch(r'Plus214_Output_0:( -?[\d.e-]+){4} \.\.\.\n', output), output)


def check_absent(names, folder):
    """Without a broker a program fails with one line, and does not hang."""
    for name in names:
        if name == 'reconnect':
            continue
        arguments = EXAMPLES.get(name, ([],))[0]
        status, output = run(folder, os.path.join(folder, 'nothing'), ['./' + name, *arguments])
        expect(status == 1 and output.count('\n') == 1, name, 'without a broker:', status, output)


def check_reconnect(folder):
    """Kill the broker below reconnect.c, and start it again."""
    with Broker(BROKERD, '--gpu=none', '--cache=none', '--calibration=none') as broker:
        path = os.path.join(folder, 'reconnect.log')

        def says():
            with open(path, encoding='utf-8') as file:
                return file.read()

        with open(path, 'wb') as log:
            client = start([os.path.join(folder, 'reconnect')], stdout=log, stderr=log,
                           env=dict(os.environ, RINGBROKER_SOCKET=broker.socket))
        wait_for(lambda: says() == 'connection 1\n', 'reconnect does not connect:', says)
        broker.end(signal.SIGKILL)
        wait_for(lambda: says() == 'connection 1\nconnection lost\n', 'reconnect does not notice:', says)
        broker.start()
        status = client.wait(LIMIT)
        expect(status == 0 and says() == 'connection 1\nconnection lost\nconnection 2\ndone\n',
               'reconnect ended with', status, says())


def check_lease(folder, broker):
    status, output = run(folder, broker.socket, ['./lease'])
    expect(status == 0 and re.fullmatch(LEASE, output), 'lease ended with', status, output)


def check_lease_sleep(folder, broker):
    """The lease of lease-sleep.c gives its memory back while it sleeps, and serves requests all the same."""
    env = dict(os.environ, RINGBROKER_SOCKET=broker.socket, LC_ALL='C')
    client = start([os.path.join(folder, 'lease-sleep')], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    found = re.fullmatch(r'lease (\d+)\n', client.stdout.readline())
    expect(found, 'lease-sleep has no lease')

    def ctl(*arguments):
        status, said = run(folder, broker.socket, [BROKERCTL, 'lease', '--json', *arguments, found.group(1)])
        expect(status == 0, 'brokerctl lease ended with', status, said)
        return json.loads(said)

    def await_lines(*lines):
        heard = [client.stdout.readline() for _ in lines]
        expect(heard == [line + '\n' for line in lines], 'lease-sleep says', heard, 'instead of', lines)

    for request in 'one', 'two':
        client.stdin.write(request + '\n')
        client.stdin.flush()
        await_lines('loaded', 'answer: ' + request)
        record = ctl('sleep')
        expect(record['sleeps'] and record['movable_bytes'] == 6 << 20, record)
        await_lines('unloaded')
        wait_for(lambda: ctl('sleep')['granted_bytes'] == 0, 'the lease keeps its memory')
    # It wakes by itself for a request, but not while it is held.
    ctl('sleep', '--hold')
    client.stdin.write('three\n')
    client.stdin.flush()
    expect(not select.select([client.stdout], [], [], 1)[0], 'lease-sleep goes on while it is held')
    ctl('wake')
    rest = client.communicate(timeout=LIMIT)[0]
    expect(rest == 'loaded\nanswer: three\n' and client.returncode == 0, 'lease-sleep ended with', client.returncode, rest)


def check_printed(folder, broker):
    """Run programs with names that could steer a terminal, and one whose request for its tenant fails."""
    def check(source, code, packages, arguments, expected_status, expected):
        build(os.path.join(folder, 'made'), packages, os.path.join(ROOT, 'doc', source), '-x', 'c', '-', '-x', 'none',
              input=code.encode())
        status, output = run(folder, broker.socket, ['./made', *arguments])
        expect(status == expected_status and output == expected, source, 'ended with', status, ascii(output))

    check('man3/rbk-stats-page.c', MADE_PAGE + PRINT_PLANS, 'ringbroker', [], 0, '?[31mnet?: device 0, none\n')
    check('man3/rbk-stats-map.c', MADE_PAGE, 'ringbroker', [], 0, '0 tasks\n0: refs: no ?[31mx\n')
    check('examples/tutorial-5.c', NO_TENANT, 'ringbroker', [], 1, 'no tenant today\n')
    if not HAVE_ONNX:
        return
    for name, op in (('good', 'Neg'), ('bad', '\033[31mOp')):
        onnx.write(os.path.join(folder, name), onnx.model(
            [onnx.node(op, ['\033[31min'], ['\033[31mout'], '\033[31mnode')], [('\033[31min', onnx.FLOAT, [1])],
            [('\033[31mout', onnx.FLOAT, [1])], []))
    packages = 'ringbroker-onnx ringbroker'
    check('man3/rbk-onnx-load.c', '', packages, ['good'], 0, '?[31min: float32\n')
    check('examples/onnx-model.c', '', packages, ['good'], 0, '?[31mout: -0\n')
    reason = 'there is no such operator in the catalogue'
    sentence = f'?[31mOp "?[31mnode": {reason}; 1 reason in all\n'
    check('examples/onnx-model.c', '', packages, ['bad'], 1, f'?[31mOp ?[31mnode: {reason}\nbad: {sentence}')
    check('man3/rbk-onnx-compile.c', PLAN_OF, packages, ['bad'], 0, f'{sentence}?[31mnode: {reason}\n')


def check_start(has_software):
    """Compare a first start by hand, and its status line for the service manager, with operating.md."""
    def plain(text):
        """Replace figures, and what the machine may lack: a level, a source, or time to measure."""
        text = re.sub(r'\(\w+\); CPU contention: .*', '(LEVEL); CPU contention: SOURCE', text)
        text = re.sub(r'\d+ (device|session|worker)s?', r'N \1s', text).replace('not contended', 'contended')
        return re.sub(r'in \d+ ms', 'in N ms', text).replace('not measured', 'measured')

    text = read('doc/operating.md')
    shown = re.search(r'^# brokerd\n((?:brokerd: .*\n)+)', text, re.MULTILINE)[1].splitlines()
    status = re.search(r'systemctl status brokerd +# (.*)', text)[1]
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        os.mkdir(folder + '/ringbroker')
        notify.bind(folder + '/notify')
        notify.settimeout(LIMIT)
        env = dict(os.environ, RINGBROKER_SOCKET=folder + '/ringbroker/brokerd.sock', NOTIFY_SOCKET=folder + '/notify')
        process = start_broker([BROKERD, '--config=/dev/null', '--cache=' + folder], folder + '/log', LIMIT, env=env)
        said = ''
        while not said.startswith('READY=1'):
            said = notify.recv(4096).decode()
        process.terminate()
        expect(process.wait(LIMIT) == 0, 'brokerd ended with', process.returncode)
        log = read(folder + '/log').replace(folder, '/run')
    if not has_software or 'device 1' in log:
        shown = [line for line in shown if 'Vulkan' not in line]
    lines = set(map(plain, log.splitlines()))
    missing = [line for line in shown if plain(line) not in lines]
    expect(not missing, 'operating.md shows lines that brokerd does not log:', *missing, 'but:\n' + log)
    expect(plain(said) == 'READY=1\nSTATUS=' + plain(status), 'operating.md shows the status', status, 'and brokerd has', said)


def check_placement(folder):
    """Compare the defaults in placement.md with those in force without a file, and the gain of a split task."""
    text = read('doc/placement.md')
    status, said = run(folder, '', [BROKERD, '--check-config', '--config=/dev/null'])
    expect(status == 0, 'brokerd --check-config ended with', status, said)
    found = {key: value.rstrip(';') for key, value in re.findall(r'([a-z-]+) = (\S+)', said.split('\nplacement: ')[1])}
    rows = re.findall(r'^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| ([^|]+) \|', text[text.index('\n## Configuration'):], re.MULTILINE)
    shown = {key.strip('`'): value for keys, values in rows for key, value in
             zip(keys.split(', '), values.split(', '), strict=True)}
    for key, value in shown.items():
        expect(found.get(key) == value, f'placement.md has {key} = {value}, and brokerd', found.get(key))
    expect(len(shown) > 12, 'placement.md has few defaults:', shown)
    status, said = run(ROOT, '', [BROKERSIM, '--json', '--policies=ours', 'tools/brokersim/scenarios/decisions.scenario'])
    expect(status == 0, 'brokersim ended with', status, said)
    gain = f"{json.loads(said.splitlines()[0])['split_gain']:.0%} faster than the better one"
    expect(gain in text, 'placement.md does not say', gain)


def check_operators(broker):
    """Compare the tables of operators.md with the capabilities of the CPU and of software Vulkan."""
    page = read('doc/operators.md')
    status, output = run(ROOT, broker.socket, [BROKERCTL, 'devices', '--capabilities', '--json'])
    expect(status == 0, 'brokerctl devices ended with', status, output)
    differences = difflib.unified_diff(page.splitlines(True), operators.expand(page, output).splitlines(True))
    difference = ''.join(differences)
    expect(not difference, 'doc/operators.md is not what brokerctl reports; see "Add an operator" in HACKING.md:\n' +
           difference)


def check_commands(folder, broker, has_gpu):
    def has(command):
        program = re.sub(r'^([A-Z_]+=\S+ )*', '', command).split()[0]
        if 'card-driver' in command and not os.path.exists(BUILD + '/tests/support/card-driver.so'):
            return False
        if '/stack' in command and os.getuid():
            return False
        if program.startswith('build/'):
            return os.path.exists(os.path.join(ROOT, BUILD, program[6:]))
        if 'brokerctl run' in command and not HAVE_ONNX or 'metrics' in command and 'metrics' not in PARTS:
            return False
        if re.search(r'brokerctl exec|lease [^|]*NUMBER', command) and not os.path.exists(BUILD + commands.LAYER):
            return False
        if not has_gpu and re.search(r'\bexec\b|lease [^|]*NUMBER|device 1|--device=gpu', command):
            return False
        return program.startswith('./') or os.path.exists(os.path.join(ROOT, program)) or any(
            path.endswith('/' + program) for path in PROGRAMS) or shutil.which(program)

    commands.check(ROOT, BUILD, folder, broker, PROGRAMS, CLIENT, has)


def main():
    if not shutil.which('pkg-config'):
        print('pkg-config is not installed')
        sys.exit(77)
    text = read('doc/tutorial.md')
    listed = check_listings(text)
    names = sorted(name[:-2] for name in os.listdir(FOLDER) if name.endswith('.c'))
    steps = [name for name in names if name.startswith('tutorial-')]
    expect(listed == {name + '.c' for name in steps}, 'tutorial.md has listings of', listed, 'and not of', steps)
    examples = [name for name in names if name not in steps]
    expect(examples == sorted(EXAMPLES), 'doc/examples has', examples, 'and EXAMPLES has', sorted(EXAMPLES))
    if not HAVE_ONNX:
        names.remove('onnx-model')
        examples.remove('onnx-model')
    policy = next(block for language, block in BLOCK.findall(text) if language == 'ini')
    policy = re.sub(r'match-uid = \d+', f'match-uid = {os.getuid()}', policy)

    with tempfile.TemporaryDirectory() as folder:
        compile_all(names, folder)
        compile_pages()
        onnx.write(os.path.join(folder, 'sum.onnx'), onnx.model(
            [onnx.node('Add', ['in', 'w'], ['sum'])], [('in', onnx.FLOAT, [1, 5])],
            [('sum', onnx.FLOAT, [1, 5])], [onnx.tensor('w', onnx.FLOAT, [5], [1.0, 2.0, 3.0, 4.0, 5.0])]))
        check_absent(names, folder)
        with Broker(BROKERD, '--gpu=none', '--cache=none', '--calibration=none', policy=policy) as broker:
            check_tutorial(text, folder, broker)
            status, output = run(folder, broker.socket, [BROKERCTL, 'set', 'web', 'arena-bytes-max=32MiB'])
            expect(status == 0, 'brokerctl set ended with', status, output)
            check_examples(examples, folder, broker)
            check_printed(folder, broker)
        check_reconnect(folder)
        check_placement(folder)
        policy = policy.replace('arena-bytes-max', 'host-max').replace('4MiB', '1GiB')
        policy += '[tenant batch]\nmatch-uid = 4243\n'
        place = os.path.join(folder, 'commands')
        metrics = ['--metrics=unix:' + os.path.join(folder, 'metrics.sock')] if 'metrics' in PARTS else []
        with Broker(BROKERD, '--gpu=software' if 'vulkan' in PARTS else '--gpu=none', '--device-memory=64MiB', '--cache=none',
                    '--calibration=none', *metrics, policy=policy) as broker:
            has_gpu = broker.says('device 1')
            if has_gpu:
                check_lease(folder, broker)
                check_lease_sleep(folder, broker)
                check_operators(broker)
            else:
                print('no software Vulkan device: lease.c was only refused, operators.md not compared')
            check_commands(place, broker, has_gpu)
        check_start(has_gpu)
    print(f'{len(names)} programs of doc/examples')


if __name__ == '__main__':
    main()
