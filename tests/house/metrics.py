#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents and files about metrics agree with the metrics.

    metrics.py ROOT          checks
    metrics.py --self-test   checks that each fault is caught

ringbroker-metrics(7) lists exactly the metrics of the golden file, with their types and labels. Alerts,
their tests and the dashboard name only these. Grafana can load the dashboard: its panels have known
types and distinct identifiers, and do not overlap; it shows leases, segments and the process. brokerctl(1) lists each figure
of the JSON output. Each alert names its section of runbooks.md, and each section there belongs to an alert.
"""
import json
import os
import re
import sys

import tree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc'))
import figures

GOLDEN = 'tests/unit/data/metrics.openmetrics'
PAGE = 'doc/ringbroker-metrics.7.in'
LISTINGS = 'doc/brokerctl.1'
TABLE = 'shm/stats-figures-a.c'  # of the self-test
DASHBOARD = 'doc/metrics/grafana-dashboard.json'
RUNBOOKS = 'doc/runbooks.md'
PARTS = ('**Meaning.** ', '**Look at.** ', '**Do.** ')  # of each section, in this order
RULES = ('doc/metrics/ringbroker.rules.yml', 'doc/metrics/ringbroker.rules-test.yml')
DOCUMENTED = re.compile(r'^\.It Li ((?:ringbroker|process)_\w+)\n\.Pq (\w+)(?: by ([a-z, ]+?))?\.?\n(.+)$', re.MULTILINE)
SUFFIXES = {'counter': '_total', 'info': '_info'}  # suffixes of samples, by which the manual names the metrics
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? \S+$')
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
PANELS = {'row', 'timeseries', 'stat', 'heatmap'}
COLUMNS = 24
SHOWN = re.compile(r'(process_(?!start_time_)|ringbroker_lease|ringbroker_tenant_device_(?:segments|bubble|leased)_)\w+')  # metrics that the dashboard must show
# Labels whose values are a tenant, a device, or words of the broker.
LABELS = {'tenant', 'device', 'reason', 'state', 'role', 'cause', 'le', 'quantile'}
INFO_LABELS = {'version', 'statistics', 'device', 'name', 'driver', 'kind', 'paths'}


def families(text, problems):
    """Return {name: (type, labels)} of the exposed text."""
    found, name, seen = {}, None, set()
    for line in text.splitlines():
        if line.startswith('# TYPE '):
            _, _, name, kind = line.split(' ')
            name += SUFFIXES.get(kind, '')
            if name in found:
                problems.append(f'{GOLDEN}: {name} is there twice')
            found[name] = ('information' if kind == 'info' else kind, set())
        elif not line.startswith('#') and '_created' not in line.split('{')[0]:
            match = SAMPLE.match(line)
            labels = set(LABEL.findall(match.group(2) or '')) if match else set()
            if not match or not name or not match.group(1).startswith(name):
                problems.append(f'{GOLDEN}: not a sample of {name}: {line}')
                continue
            series = line.rsplit(' ', 1)[0]
            if series in seen:
                problems.append(f'{GOLDEN}: {series} is there twice')
            seen.add(series)
            found[name][1].update(labels)
    return found


def tables(root):
    return figures.tables([os.path.join(root, path) for path in tree.files(root)
                           if re.fullmatch(r'shm/stats-figures-[a-z]+\.c', path)])


def check_page(root, found, problems):
    documented = {}
    for name, kind, labels, _ in DOCUMENTED.findall(figures.expand(tables(root), tree.read(root, PAGE))):
        if name in documented:
            problems.append(f'{PAGE}: {name} is there twice')
        documented[name] = (kind, set((labels or '').split(', ')) - {''})
    for name in sorted(set(found) - set(documented)):
        problems.append(f'{PAGE}: {name} is not documented')
    for name in sorted(set(documented) - set(found)):
        problems.append(f'{PAGE}: {name} does not exist')
    for name in sorted(set(documented) & set(found)):
        kind, labels = found[name]
        if documented[name] != (kind, labels - {'le', 'quantile'}):
            problems.append(f'{PAGE}: {name} is a {kind} by {", ".join(sorted(labels)) or "nothing"}')


def check_listings(root, problems):
    text = tree.read(root, LISTINGS)
    records = dict(re.findall(r'^\.It Dq (\w+)\n((?:(?!\.It Dq|\.El).*\n)*)', text, re.MULTILINE))
    for table, rows in tables(root).items():
        about = records.get(table.split('_', maxsplit=1)[0], text)
        words = set(re.findall(r'\w+', ' '.join(re.findall(r'^\..*\bVa (.*)$', about, re.MULTILINE))))
        names = [row.fields['json'] for row in rows if 'json' in row.fields]
        problems += [f'{table}: {name} is there twice' for name in sorted(set(names)) if names.count(name) > 1]
        problems += [f'{LISTINGS}: {name} of {table} is not documented' for name in sorted(set(names) - words)]


def anchor(title):
    """Return the anchor that a heading has on web pages."""
    return re.sub(r'[^\w -]', '', title.lower()).replace(' ', '-')


def check_runbooks(rules, text, problems):
    """Each alert names a section that exists, and each section belongs to an alert."""
    sections = dict(re.findall(r'^## (.+)\n((?:(?!## ).*\n?)*)', text, re.MULTILINE))
    alerts = re.split(r'^ *- alert: ', rules, flags=re.MULTILINE)[1:]
    for alert in alerts:
        name = alert.split('\n', 1)[0]
        named = re.search(r'^ *runbook_url: \S+/(\S+?)#(\S+)$', alert, re.MULTILINE)
        if not named:
            problems.append(f'{RULES[0]}: {name} has no runbook_url')
        elif named[1] != os.path.basename(RUNBOOKS) or named[2] != anchor(name):
            problems.append(f'{RULES[0]}: the runbook_url of {name} is not its section of {RUNBOOKS}')
        if name not in sections:
            problems.append(f'{RUNBOOKS}: no section {name}')
            continue
        places = [('\n' + sections[name]).find('\n' + part) for part in PARTS]
        if min(places) < 0 or places != sorted(places):
            problems.append(f'{RUNBOOKS}: {name} has not the parts {" ".join(PARTS)}')
    for name in sorted(set(sections) - {alert.split('\n', 1)[0] for alert in alerts}):
        problems.append(f'{RUNBOOKS}: {name} is no alert')
    for link in re.findall(r'\]\(#([^)]+)\)', text):
        if link not in map(anchor, sections):
            problems.append(f'{RUNBOOKS}: no section #{link}')


def check_labels(found, problems):
    for name, (kind, labels) in sorted(found.items()):
        for label in sorted(labels - (INFO_LABELS if kind == 'information' else LABELS)):
            problems.append(f'{GOLDEN}: {name} has the label {label}, which nobody bounds')


def check_names(path, text, found, problems):
    known = set(found)
    for name, (kind, _) in found.items():
        if kind in ('histogram', 'summary'):
            known |= {name + suffix for suffix in ('_bucket', '_sum', '_count')}
    for name in sorted(set(re.findall(r'\b(?:ringbroker|process)_\w+', text)) - known):
        problems.append(f'{path}: {name} does not exist')


def check_dashboard(board, problems):
    def wrong(what):
        problems.append(f'{DASHBOARD}: {what}')

    for key, kind in (('title', str), ('uid', str), ('schemaVersion', int), ('panels', list),
                      ('templating', dict), ('time', dict), ('annotations', dict)):
        if not isinstance(board.get(key), kind):
            wrong(f'{key} is missing')
    variables = {entry.get('name') for entry in board.get('templating', {}).get('list', [])}
    identifiers, taken = set(), {}
    for panel in board.get('panels') or []:
        title = panel.get('title')
        if panel.get('type') not in PANELS:
            wrong(f'{title}: no panel of type {panel.get("type")} is known')
        if panel.get('id') in identifiers:
            wrong(f'{title}: identifier {panel.get("id")} is there twice')
        identifiers.add(panel.get('id'))
        place = panel.get('gridPos', {})
        if place.get('w', 0) < 1 or place.get('x', 0) + place.get('w', 0) > COLUMNS:
            wrong(f'{title}: is not within {COLUMNS} columns')
        cells = [(x, y) for x in range(place.get('x', 0), place.get('x', 0) + place.get('w', 0))
                 for y in range(place.get('y', 0), place.get('y', 0) + place.get('h', 0))]
        for other in sorted({taken[cell] for cell in cells if cell in taken}):
            wrong(f'{title}: lies over {other}')
        taken.update((cell, title) for cell in cells)
        if panel.get('type') == 'row':
            continue
        if not panel.get('targets'):
            wrong(f'{title}: shows nothing')
        if len({target.get('refId') for target in panel.get('targets', [])}) != len(panel.get('targets', [])):
            wrong(f'{title}: two targets of one refId')
        for target in panel.get('targets', []):
            if target.get('datasource', {}).get('uid') != '${datasource}':
                wrong(f'{title}: a data source of its own')
            for name in re.findall(r'\$(\w+)', target.get('expr', '')):
                if not name.startswith('__') and name not in variables:
                    wrong(f'{title}: no variable {name}')


def check(root):
    problems = []
    found = families(tree.read(root, GOLDEN), problems)
    check_labels(found, problems)
    check_page(root, found, problems)
    check_listings(root, problems)
    check_runbooks(tree.read(root, RULES[0]), tree.read(root, RUNBOOKS), problems)
    for path in RULES:
        check_names(path, tree.read(root, path), found, problems)
    text = tree.read(root, DASHBOARD)
    check_names(DASHBOARD, text, found, problems)
    problems += [f'{DASHBOARD}: {name} is not shown' for name in sorted(filter(SHOWN.fullmatch, found))
                 if not re.search(rf'\b{name}\b', text)]
    try:
        check_dashboard(json.loads(text), problems)
    except ValueError as error:
        problems.append(f'{DASHBOARD}: {error}')
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    found = families(tree.read(sys.argv[1], GOLDEN), [])
    tree.report(check(sys.argv[1]), len(found), 'metrics')


PANEL = {'id': 1, 'type': 'stat', 'title': 'A', 'gridPos': {'x': 0, 'y': 0, 'w': 4, 'h': 4},
         'targets': [{'refId': 'A', 'datasource': {'uid': '${datasource}'}, 'expr': 'ringbroker_a{x="$i"}'}]}
BOARD = {'title': 'T', 'uid': 'u', 'schemaVersion': 37, 'panels': [PANEL], 'time': {}, 'annotations': {},
         'templating': {'list': [{'name': 'i'}]}}
GOOD = {
    GOLDEN: '# HELP ringbroker_a A.\n# TYPE ringbroker_a gauge\nringbroker_a{tenant="x,\\"y"} 1\n'
            '# TYPE ringbroker_h histogram\nringbroker_h_sum 1\n',
    PAGE: '.It Li ringbroker_a\n.Pq gauge by tenant\nA.\n.It Li ringbroker_h\n.Pq histogram\nH.\n',
    LISTINGS: '.Va b ,\n',
    TABLE: 'const struct figure a_figures[] = {\n\tA(b, 0, .json = "b"),\n\t{.json = NULL},\n};\n',
    DASHBOARD: json.dumps(BOARD), RULES[1]: 'x\n',
    RULES[0]: '- alert: AbC\n  expr: rate(ringbroker_h_sum[1m])\n  runbook_url: x:/y/runbooks.md#abc\n',
    RUNBOOKS: '## AbC\n\n**Meaning.** A.\n\n**Look at.** B.\n\n**Do.** C. [see](#abc)\n',
}


def board(**changes):
    return {**GOOD, DASHBOARD: json.dumps({**BOARD, **changes})}


CASES = [
    ('good', GOOD, None),
    ('not documented', {**GOOD, PAGE: GOOD[PAGE].split('.It Li ringbroker_h')[0]}, 'ringbroker_h is not documented'),
    ('not listed', {**GOOD, LISTINGS: '.Va c\n'}, 'b of a_figures is not documented'),
    ('listed elsewhere', {**GOOD, LISTINGS: '.It Dq a\n.Va c\n.It Dq d\n.Va b\n'}, 'b of a_figures is not documented'),
    ('twice in JSON', {**GOOD, TABLE: GOOD[TABLE].replace('\tA(', '\tA(c, 8, .json = "b"),\n\tA(')},
     'a_figures: b is there twice'),
    ('not there', {**GOOD, PAGE: GOOD[PAGE] + '.It Li ringbroker_z\n.Pq gauge\nZ.\n'}, 'ringbroker_z does not exist'),
    ('labels', {**GOOD, PAGE: GOOD[PAGE].replace(' by tenant', '')}, 'ringbroker_a is a gauge by tenant'),
    ('type', {**GOOD, PAGE: GOOD[PAGE].replace('histogram', 'counter')}, 'ringbroker_h is a histogram'),
    ('twice', {**GOOD, GOLDEN: GOOD[GOLDEN] + 'ringbroker_h_sum 2\n'}, 'ringbroker_h_sum is there twice'),
    ('unbounded', {**GOOD, GOLDEN: GOOD[GOLDEN] + 'ringbroker_h_sum{plan="p"} 2\n',
                    PAGE: GOOD[PAGE].replace('histogram', 'histogram by plan')}, 'the label plan'),
    ('alert', {**GOOD, RULES[0]: GOOD[RULES[0]] + 'expr: ringbroker_b > 1\n'}, 'ringbroker_b does not exist'),
    ('process', {**GOOD, RULES[0]: GOOD[RULES[0]] + 'expr: process_b > 1\n'}, 'process_b does not exist'),
    ('no runbook', {**GOOD, RULES[0]: '- alert: AbC\n'}, 'AbC has no runbook_url'),
    ('runbook of another', {**GOOD, RULES[0]: GOOD[RULES[0]].replace('#abc', '#ab')}, 'the runbook_url of AbC is not'),
    ('no section', {**GOOD, RUNBOOKS: 'x\n'}, 'no section AbC'),
    ('no remedy', {**GOOD, RUNBOOKS: GOOD[RUNBOOKS].replace('**Do.**', 'Do')}, 'AbC has not the parts'),
    ('no alert', {**GOOD, RUNBOOKS: GOOD[RUNBOOKS] + '## D\n'}, 'D is no alert'),
    ('link', {**GOOD, RUNBOOKS: GOOD[RUNBOOKS].replace('(#abc', '(#abd')}, 'no section #abd'),
    ('JSON', {**GOOD, DASHBOARD: '{'}, 'grafana-dashboard.json: '),
    ('not shown', {**GOOD, GOLDEN: GOOD[GOLDEN] + '# TYPE ringbroker_leases gauge\nringbroker_leases 1\n',
                   PAGE: GOOD[PAGE] + '.It Li ringbroker_leases\n.Pq gauge\nL.\n'}, 'ringbroker_leases is not shown'),
    ('no title', board(title=None), 'title is missing'),
    ('panel', board(panels=[{**PANEL, 'type': 'pie'}]), 'no panel of type pie'),
    ('wide', board(panels=[{**PANEL, 'gridPos': {'x': 20, 'y': 0, 'w': 5, 'h': 1}}]), 'not within 24'),
    ('overlap', board(panels=[PANEL, {**PANEL, 'id': 2, 'title': 'B'}]), 'B: lies over A'),
    ('identifier', board(panels=[PANEL, {**PANEL, 'gridPos': {'x': 9, 'y': 0, 'w': 5, 'h': 1}}]), 'is there twice'),
    ('variable', board(templating={'list': []}), 'no variable i'),
    ('dashboard', board(panels=[{**PANEL, 'targets': [{**PANEL['targets'][0], 'expr': 'ringbroker_q'}]}]),
     'ringbroker_q does not exist'),
]

if __name__ == '__main__':
    main()
