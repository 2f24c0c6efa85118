#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokersim's interface, whatever the figures are, and the figures of the quick scenarios.

    brokersim.py BROKERSIM DATA MODELS
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from started import expect

KEYS = ['scenario', 'policy', 'makespan', 'bound', 'accuracy', 'regret', 'jain', 'p50', 'p99']
POLICIES = {'ours', 'cpu', 'gpu', 'threshold', 'round-robin', 'ect', 'heft', 'means', 'oracle',
            'oracle-lpt'}
LIMIT = 600

# Two servers: the slow one moves a byte per nanosecond; the fast one is twice as fast and has no link.
SLOW = '[device]\nname = slow\n[rates]\nothers.flops = 1 TFLOP/s\nothers.bytes = 1 GB/s\n'
FAST = SLOW.replace('slow', 'fast').replace('1 GB/s', '2 GB/s')
# Each of the four sums of 10,000,000 bytes takes 10 ms on the slow device and 5 ms on the fast one. The optimum
# is one and three: 15 ms.
GOLDEN = '''[scenario]
cpu = {folder}/slow.profile
gpu = {folder}/fast.profile
exact = yes
[placement]
submission = 1s
[plan sum]
op = Add
rows = 2500
columns = 333
count = 2500
[tenant all]
arrivals = all
tasks = 4
plans = sum
'''

GRAPHS = '''[scenario]
exact = yes
[graphs]
families = fft, cholesky
nodes = 10
devices = 2
communication = 0.1, 1
graphs = 2
'''

MODELS = '''[scenario]
about = two models
[graphs]
models = fr_pose, ppocr4_rec
profiles = cpu-8core, rx580
graphs = 1
tasks = 10
in-flight = 4
[expect]
busy >= 0.1
'''

program, data, models = sys.argv[1:4]


def run(*arguments, **kwargs):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=LIMIT, check=False,
                          env={**os.environ, 'BROKERSIM_DATA': data}, **kwargs)


def objects(*arguments):
    result = run('--json', *arguments)
    expect(result.returncode == 0, f'{arguments}: {result.returncode}: {result.stderr}')
    return [json.loads(line) for line in result.stdout.splitlines()]


def scenario(name):
    return os.path.join(data, 'scenarios', name + '.scenario')


def check_command_line():
    for option in ('--help', '-h', '--version', '--list'):
        result = run(option)
        expect(result.returncode == 0 and result.stdout and not result.stderr, option)
    names = run('--list').stdout
    for word in ('rx580', 'tpu-v5p', 'decisions', 'heft', 'cholesky'):
        expect(f'  {word}' in names, f'--list does not name {word}')
    for arguments in ([], ['--nonsense'], ['--quick', scenario('small')], ['--seed=x', '--all'],
                      ['--seed=-1', '--all'], ['--policies=none', '--all'], ['--policies=', '--all'],
                      ['--all', scenario('small')], ['--runs=0', '--all']):
        result = run(*arguments)
        expect(result.returncode == 2 and result.stderr, f'{arguments}: {result.returncode}')


def check_bad_input(folder):
    """Each wrong input yields one message with file and line, and status 2."""
    good = GOLDEN.format(folder=folder)
    profile = os.path.join(folder, 'negative.profile')
    with open(profile, 'w', encoding='utf-8') as file:
        file.write(SLOW.replace('1 GB/s', '-1 GB/s'))
    trace = os.path.join(folder, 'bad.trace')
    with open(trace, 'w', encoding='utf-8') as file:
        file.write('0 all sum 2500\n0.1 all nothing 1\n')
    cases = {
        'unknown key': (good.replace('exact = yes', 'exakt = yes'), 'bad.scenario:4: '),
        'unknown section': (good + '[nothing]\n', 'bad.scenario:16: '),
        'no value': (good.replace('exact = yes', 'exact ='), 'bad.scenario:4: '),
        'not a number': (good.replace('rows = 2500', 'rows = many'), 'bad.scenario:9: '),
        'not finite': (good.replace('rows = 2500', 'rows = inf'), 'bad.scenario:9: '),
        'weight 0': (good + 'weight = 0\n', 'bad.scenario:16: '),
        'no tasks': (good.replace('tasks = 4', 'tasks = 0'), 'bad.scenario:14: '),
        'nothing to run': (good[:good.index('[tenant')], 'bad.scenario: '),
        'no plan': ('[scenario]\ncpu = a\ngpu = b\n[tenant a]\narrivals = all\ntasks = 1\n',
                    'bad.scenario: '),
        'no such plan': (good.replace('plans = sum', 'plans = difference'), 'bad.scenario:12: '),
        'no such operator': (good.replace('op = Add', 'op = Subtract'), 'bad.scenario:8: '),
        'no such dimension': (good.replace('columns = 333', 'columns = 333\nkernel = 3'),
                              'bad.scenario:7: '),
        'count': (good.replace('count = 2500', 'count = 2501'), 'bad.scenario:7: '),
        'figure': (good + '[expect]\nbeauty >= 1\n', 'bad.scenario:17: '),
        'relation': (good + '[expect]\nratio = 1\n', 'bad.scenario:17: '),
        'no profile': (good.replace('slow.profile', 'none.profile'), 'none.profile'),
        'negative bandwidth': (good.replace('slow.profile', 'negative.profile'),
                               'negative.profile:5: '),
        'trace': (good.replace('exact = yes', 'trace = bad.trace'), 'bad.trace:2: '),
        'no trace': (good.replace('exact = yes', 'trace = no.trace'), 'bad.scenario:4: '),
        'drift': (good + '[truth]\ndrift = 0.1\n', 'bad.scenario: '),
        'hogs': (good + '[event]\nat = 0s\nhogs = -1\n', 'bad.scenario:18: '),
        'binary': ('\x00\x01\x02', 'bad.scenario:1: '),
        'no such family': (GRAPHS.replace('fft', 'sft'), 'bad.scenario:4: '),
        'no ratio': (GRAPHS.replace('0.1, 1', ','), 'bad.scenario:7: '),
        'wrong ratio': (GRAPHS.replace('0.1, 1', '0.1, -1'), 'bad.scenario:7: '),
        'too many ratios': (GRAPHS.replace('0.1, 1', '1 ' * 9), 'bad.scenario:7: '),
        'too many devices': (GRAPHS.replace('= 2\ncomm', '= 4\ncomm'), 'bad.scenario:3: '),
        'too many nodes': (GRAPHS.replace('= 10', '= 21'), 'bad.scenario:3: '),
        'fewer devices': (GRAPHS + 'devices-min = 3\n', 'bad.scenario:3: '),
        'exact noise': (GRAPHS + 'noise = 0.1\n', 'bad.scenario:3: '),
        'exact contention': (GRAPHS + 'contention = yes\n', 'bad.scenario:3: '),
        'exact tasks': (GRAPHS + 'tasks = 2\n', 'bad.scenario:3: '),
        'in flight': (GRAPHS + 'in-flight = 2\n', 'bad.scenario:3: '),
        'graphs and truth': (GRAPHS + '[truth]\nnoise = 0.1\n', 'bad.scenario:9: '),
        'graphs and runs': (GRAPHS.replace('exact', 'runs = 2\nexact'), 'bad.scenario:1: '),
        'optimum without exact': (GRAPHS.replace('exact = yes', '') + '[expect]\noptimum-mean <= 2\n',
                                  'bad.scenario:10: '),
        'bound with noise': (GRAPHS.replace('exact = yes', '') +
                             'noise = 0.1\n[aim]\nbound-worst <= 2\n', 'bad.scenario:11: '),
        'graphs twice': (GRAPHS + '[graphs]\n', 'bad.scenario:9: '),
        'graphs and a plan': (GRAPHS + '[generate]\nplans = 1\n', 'bad.scenario:9: '),
        'graphs and a profile': (GRAPHS.replace('exact', 'cpu = a\nexact'), 'bad.scenario:1: '),
        'models without profiles': (MODELS.replace('profiles', '#'), 'bad.scenario:4: models need two'),
        'one profile': (MODELS.replace(', rx580', ''), 'bad.scenario:5: models need two'),
        'profiles without models': (MODELS.replace('models =', '#'), 'bad.scenario:5: profiles are for'),
        'models and nodes': (MODELS.replace('graphs = 1', 'nodes = 10'), 'bad.scenario:4: nodes does'),
        'models and ratios': (MODELS.replace('graphs = 1', 'communication = 1'), ':4: communication does'),
        'models and the optimum': (MODELS.replace('about', 'exact = yes\nabout'), ':5: exact does not'),
        'no model': (MODELS.replace('fr_pose, ppocr4_rec', ','), 'bad.scenario:4: '),
        'too many models': (MODELS.replace('fr_pose', 'm ' * 16), 'bad.scenario:4: '),
        'long name': (MODELS.replace('fr_pose', 'm' * 48), 'bad.scenario:4: '),
        'no such device': (MODELS.replace('rx580', 'rx850'), 'bad.scenario:5: profiles: there is no "rx850"'),
        'no CPU': (MODELS.replace('cpu-8core', 'h100'), 'bad.scenario:5: profiles: the first is to be the CPU'),
        'half a graph': (MODELS.replace('graphs = 1', 'graphs = 0.5'), 'bad.scenario:6: graphs: "0.5"'),
        'no folder of models': (MODELS, 'bad.scenario:4: models need --models=DIR'),
        'figure of plans': (GRAPHS + '[expect]\nratio >= 1\n', 'bad.scenario:10: '),
        'figure of graphs': (good + '[expect]\nbusy >= 1\n', 'bad.scenario:17: '),
        'long line': ('# ' + 'x' * 5000, 'bad.scenario:1: '),
    }
    path = os.path.join(folder, 'bad.scenario')
    for name, (text, expected) in cases.items():
        expect(text != good, f'{name}: the case is the good one')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        result = run(path)
        expect(result.returncode == 2, f'{name}: status {result.returncode}: {result.stderr}')
        expect(result.stderr.count('\n') == 1 and expected in result.stderr,
               f'{name}: expected {expected!r}: {result.stderr}')
    result = run(os.path.join(folder, 'missing.scenario'))
    expect(result.returncode == 2 and 'missing.scenario: ' in result.stderr, 'missing file')


def check_golden(folder):
    path = os.path.join(folder, 'golden.scenario')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(GOLDEN.format(folder=folder))
    found = {o['policy']: o for o in objects(path)}
    expect(set(found) == POLICIES, f'policies: {sorted(found)}')
    # 2500 x 333 x 12 bytes = 9.99 MB.
    unit = 9.99e-3
    for policy, makespan in (('cpu', 4), ('gpu', 2), ('oracle', 1.5), ('ect', 1.5), ('ours', 1.5)):
        expect(abs(found[policy]['makespan'] / (makespan * unit) - 1) < 0.001,
               f'golden: {policy} took {found[policy]["makespan"]}')
    bound = found['ours']['bound'] / unit
    exact = found['ours']['bound_kind'] == 'exact'
    expect(abs(bound / (1.5 if exact else 4 / 3) - 1) < 0.0025, f'golden: the bound is {bound}')
    expect(found['oracle']['accuracy'] == 1 and found['oracle']['regret'] == 0, 'golden: oracle')
    expect(found['cpu']['accuracy'] < 1, 'golden: everything on the CPU was right')

    # The trace describes the same load, but its last task arrives late.
    with open(os.path.join(folder, 'four.trace'), 'w', encoding='utf-8') as file:
        file.write('# seconds tenant plan count\n0 all sum 2500\n0 all sum 2500\n0 all sum 2500\n'
                   '1 all sum 2500\n')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(GOLDEN.format(folder=folder).replace('exact = yes', 'trace = four.trace'))
    found = {o['policy']: o for o in objects(path)}
    expect(abs(found['gpu']['makespan'] - 1 - unit / 2) < 1e-5, 'trace: the last task')
    expect(found['ours']['tasks'] == 4 and found['ours']['completed'] == 1, 'trace: tasks')


def check_json():
    result = run('--json', scenario('decisions'), scenario('partition'))
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    for line in lines:
        for key in KEYS:
            expect(key in line, f'no {key} in {line}')
        for key in KEYS[2:]:
            expect(isinstance(line[key], (int, float)) and line[key] >= 0, f'{key}: {line[key]}')
        expect(0 <= line['accuracy'] <= 1 and 0 < line['jain'] <= 1, 'a share beyond 1')
        expect(line['completed'] == 1, f'{line["scenario"]}: {line["policy"]} left tasks')
    names = [(line['scenario'], line['cpu'], line['gpu'], line['policy']) for line in lines]
    expect(len(names) == len(set(names)) and len(names) == 2 * len(POLICIES), 'one object each')
    # The same seed yields identical output; another seed does not.
    again = run('--json', scenario('decisions'), scenario('partition'))
    expect(again.stdout == result.stdout, 'two runs differ')
    other = run('--json', '--seed=5', scenario('decisions'), scenario('partition'))
    expect(other.stdout != result.stdout, 'seeds make no difference')


def check_graphs(folder):
    path = os.path.join(folder, 'graphs.scenario')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(GRAPHS)
    found = objects(path)
    names = [(line['family'], line['policy']) for line in found]
    policies = ['ours', 'heft', 'peft', 'dmdas']
    expect(sorted(names[:-1]) == sorted((family, policy) for family in ('fft', 'cholesky')
                                        for policy in policies), f'{names}')
    for line in found[:-1]:
        expect(line['graphs'] == 4 and line['over_bound'] >= 0.999 and line['by_ours'] >= 0.999 and
               0 < line['busy'] <= 1, f'{line}')
    figures = found[-1]
    expect(figures['family'] is None and figures['optimum-solved'] == 1, f'{figures}')
    expect(1 <= figures['optimum-mean'] <= figures['optimum-worst'], f'{figures}')
    expect(objects(path) == found and objects('--seed=7', path) != found, 'graphs: seeds')

    devices, links = check_utilization(path, 'family')
    expect(len(devices) == 4 and links, f'{devices}')

    # If two tasks run at a time, the busiest device works more; noise changes times. Neither has a bound.
    for change in ('tasks = 2\nin-flight = 2', 'noise = 0.5'):
        with open(path, 'w', encoding='utf-8') as file:
            file.write(GRAPHS.replace('exact = yes', '') + change + '\n')
        changed = objects(path)
        expect(changed[0]['over_bound'] is None and changed[-1]['bound-worst'] is None, f'{changed}')
        expect(changed[0]['busy'] > found[0]['busy'] or 'noise' in change, f'{changed}')
        expect(changed[1]['by_ours'] != found[1]['by_ours'], f'{change} changes nothing')
    for option in ('--cpu=rx580', '--gpu=none', '-m1', '-n2', '-pheft', '--starpu'):
        result = run(option, path)
        expect(result.returncode == 2 and path in result.stderr, f'{option}: {result.stderr}')
    result = run('--svg', folder, path)
    expect(result.returncode == 0 and 'cholesky' in result.stdout, result.stderr)
    root = xml.etree.ElementTree.parse(os.path.join(folder, 'graphs.svg')).getroot()
    bars = root.findall('.//{http://www.w3.org/2000/svg}rect')
    expect(len(bars) >= 10, f'graphs: {len(bars)} bars')
    none = os.path.join(folder, 'none')
    result = run('--svg', none, path)
    expect(result.returncode == 1 and result.stderr ==
           f'brokersim: {none}/graphs.svg: No such file or directory\n', result.stderr)
    if os.path.exists('/dev/full'):
        os.unlink(os.path.join(folder, 'graphs.svg'))
        os.symlink('/dev/full', os.path.join(folder, 'graphs.svg'))
        result = run('--svg', folder, path)
        expect(result.returncode == 1 and 'graphs.svg: No space left on device' in result.stderr,
               result.stderr)


def check_utilization(path, group, *options):
    """Each device's three shares make one, and what crosses came from somewhere."""
    lines = [line for line in objects('--utilization', *options, path) if group in line]
    devices = [line for line in lines if 'device' in line]
    links = [line for line in lines if 'from' in line]
    expect(devices, f'no devices in {lines}')
    for line in devices:
        shares = [line[key] for key in ('busy', 'bubbles', 'idle')]
        expect(abs(sum(shares) - 1) < 1e-6 and min(shares) > -1e-9, f'{line}')
        expect((line['nodes'] > 0) == (line['busy'] > 0), f'{line}')
    for line in links:
        expect(line['from'] != line['to'] and line['bytes'] > 0, f'{line}')
        expect(any(d[group] == line[group] and d['device'] == line['to'] and d['nodes'] > 0
                   for d in devices), f'{line}')
    text = run('--utilization', *options, path)
    expect(text.returncode == 0 and 'bubbles' in text.stdout, text.stderr)
    return devices, links


def check_models(folder):
    path = os.path.join(folder, 'models.scenario')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(MODELS)
    result = run('--models', os.path.join(folder, 'nothing'), path)
    expect(result.returncode == 2 and 'models.scenario:4: model fr_pose: ' in result.stderr, result.stderr)
    if 'built without ONNX' in result.stderr:
        print('no models: built without ONNX')
        return
    expect('nothing/fr_pose/model.onnx' in result.stderr, result.stderr)
    expect(run('--models', 'a' * 1100, path).returncode == 2, 'a long path')
    if not os.path.isdir(models):
        print(f'no models: there is no folder {models}')
        return
    option = f'--models={models}'
    found = objects(option, path)
    expect(sorted((line['model'], line['policy']) for line in found[:-1]) == sorted(
        (model, policy) for model in ('fr_pose', 'ppocr4_rec')
        for policy in ('ours', 'heft', 'peft', 'dmdas')), f'{found}')
    devices, _ = check_utilization(path, 'model', option)
    expect({line['device'] for line in devices} == {'cpu-8core', 'rx580'}, f'{devices}')
    # With the tasks of fr_pose, the card is the better one, and the CPU helps.
    work = {line['device']: line['nodes'] for line in devices if line['model'] == 'fr_pose'}
    expect(work['rx580'] > work['cpu-8core'] > 0, f'{work}')
    # Both times are there, and a second device of the same kind has a name of its own.
    expect(all(line['span_ns'] > 0 for line in found[:-1]), f'{found}')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(MODELS.replace('rx580', 'rx580, rx580'))
    devices, _ = check_utilization(path, 'model', option)
    expect({line['device'] for line in devices} == {'cpu-8core', 'rx580', 'rx580 #2'}, f'{devices}')
    # A slow link keeps them on the CPU.
    slow = os.path.join(folder, 'far-0.1.profile')
    with open(os.path.join(data, 'profiles/rx580.profile'), encoding='utf-8') as file:
        text = file.read().replace('6.2 GB/s', '1 MB/s').replace('6 GB/s', '1 MB/s')
    with open(slow, 'w', encoding='utf-8') as file:
        file.write(text)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(MODELS.replace('rx580', slow))
    devices, _ = check_utilization(path, 'model', option)
    work = {line['device']: line['nodes'] for line in devices if line['model'] == 'fr_pose'}
    expect(work['far-0.1'] == 0 and work['cpu-8core'] > 0, f'{work}')
    broken = os.path.join(folder, 'fr_pose', 'model.onnx')
    os.mkdir(os.path.dirname(broken))
    with open(broken, 'w', encoding='utf-8') as file:
        file.write('not a model')
    result = run('--models', folder, path)
    expect(result.returncode == 2 and broken in result.stderr and result.stderr.count('\n') == 1,
           result.stderr)
    # The sentence names the array at fault, and JSON has any name.
    os.symlink(os.path.join(models, 'fr_pose', 'model.onnx'), broken + '.link')
    os.replace(broken + '.link', broken)
    with open(os.path.join(os.path.dirname(broken), 'in0.npy'), 'w', encoding='utf-8') as file:
        file.write('no array')
    result = run('--models', folder, path)
    expect(result.returncode == 2 and 'in0.npy' in result.stderr, result.stderr)
    odd = 'a"b\\c'
    os.symlink(os.path.join(models, 'fr_pose'), os.path.join(folder, odd))
    with open(path, 'w', encoding='utf-8') as file:
        file.write(MODELS.replace('fr_pose, ppocr4_rec', odd))
    expect(objects('--models', folder, path)[0]['model'] == odd, 'names in JSON')


def check_starpu():
    """Tasks that arrive over time cannot be compared; without StarPU no task can."""
    result = run('--starpu', '-pours', '-n1', scenario('lost'))
    expect(result.returncode == 1 and result.stderr.startswith('brokersim: ') and
           result.stderr.count('\n') == 1, f'--starpu: {result.returncode}: {result.stderr}')


def check_svg(folder):
    result = run('--svg', folder, '-n1', scenario('fair-equal'))
    expect(result.returncode == 0, result.stderr)
    for name in ('fair-equal', 'fair-equal-ours'):
        path = os.path.join(folder, name + '.svg')
        root = xml.etree.ElementTree.parse(path).getroot()
        expect(root.tag == '{http://www.w3.org/2000/svg}svg', f'{name}: {root.tag}')
        bars = root.findall('.//{http://www.w3.org/2000/svg}rect')
        expect(len(bars) >= 8, f'{name}: {len(bars)} bars')
        with open(path, encoding='utf-8') as file:
            text = file.read()
        expect(text.count('http') == 1 and 'nan' not in text, f'{name}: links or no numbers')
        expect('prefers-color-scheme' in text, f'{name}: one colour scheme only')
    none = os.path.join(folder, 'none')
    result = run('--svg', none, '-n1', scenario('fair-equal'))
    expect(result.returncode == 1 and result.stderr ==
           f'brokersim: {none}/fair-equal-ours.svg: No such file or directory\n', result.stderr)
    # The disk is full while each of the two pictures is written.
    if os.path.exists('/dev/full'):
        for name in ('fair-equal-ours', 'fair-equal'):
            path = os.path.join(folder, name + '.svg')
            os.unlink(path)
            os.symlink('/dev/full', path)
            result = run('--svg', folder, '-n1', scenario('fair-equal'))
            expect(result.returncode == 1 and
                   result.stderr == f'brokersim: {path}: No space left on device\n', result.stderr)
            os.unlink(path)
            run('--svg', folder, '-n1', scenario('fair-equal'))


def check_figures(folder):
    """Every figure of the quick scenarios is reached, and an unreachable figure fails."""
    result = run('--all', '--quick', '--check')
    expect(result.returncode == 0, result.stdout + result.stderr)
    expect('missed, ' in result.stdout, result.stdout)
    path = os.path.join(folder, 'hopeless.scenario')
    with open(path, 'w', encoding='utf-8') as file:
        file.write(GOLDEN.format(folder=folder) + '[expect]\nmakespan <= 0.001\n')
    expect(run('--check', path).returncode == 1, 'a missed figure is no failure with --check')
    expect(run(path).returncode == 0, 'a missed figure is a failure without --check')


with tempfile.TemporaryDirectory() as temporary:
    for profile_name, profile_text in (('slow', SLOW), ('fast', FAST)):
        with open(os.path.join(temporary, profile_name + '.profile'), 'w',
                  encoding='utf-8') as profile_file:
            profile_file.write(profile_text)
    check_command_line()
    check_bad_input(temporary)
    check_golden(temporary)
    check_json()
    check_graphs(temporary)
    check_models(temporary)
    check_starpu()
    check_svg(temporary)
    check_figures(temporary)
