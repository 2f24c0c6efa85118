#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What AMD's compiler makes of every shader, without an AMD card, against what is on record.

    vulkan-statistics.py [--write] [--assembly FOLDER] [--families NAME,...] [--known] PROGRAM RECORD

PROGRAM: tests/support/vulkan-statistics, run once for each family of cards under RADV's null device.
RECORD: the figures that it gave when they were last looked at, as JSON; --write makes it anew, and
--assembly leaves the disassemblies in FOLDER. --families measures only these; --write takes all.

The program also compiles the pipelines without figures. Whether they compile, and the figures, depend on the driver,
and on the code and constants of the pipelines, alone. The record has a digest of these for each family, and --known
leaves out the families whose digest is that of the record.

Always wrong: a register that is spilled; fewer than MIN_WAVES waves on a SIMD in a matrix product or
a convolution. Wrong under the driver of the record: fewer waves than there, a markedly lower share
of multiplications in the innermost loop, fewer loads on their way at once in what goes over rows. Said only: markedly more registers than there; a pipeline
that is not on record, or not there any more. Exit status
77 where RADV, the extension or a family is not known.
"""
import argparse
import json
import os
import re
import subprocess
import sys

# Names for RADV_FORCE_FAMILY; newer drivers use the second name.
FAMILIES = {
    'polaris10': ('polaris10',),
    'vega10': ('vega10',),
    'navi10': ('navi10',),
    'navi21': ('navi21',),
    'gfx1100': ('gfx1100', 'navi31'),
}
FIGURES = ['vgprs', 'sgprs', 'spilled', 'scratch', 'lds', 'code', 'waves']
MIN_WAVES = 5
# Builds of one driver differ slightly; the tolerances let only changes of our shaders show.
VGPRS_TOLERANCE = 4
FMA_TOLERANCE = 0.02
HEAVY = re.compile(r'MatMul|Gemm|Conv')
FMA = re.compile(r'v_(pk_)?(fma|fmac|mac|mad|madak|madmk|fmaak|fmamk)(_mix)?_(legacy_)?f(16|32|64)|'
                 r'v_dual_fma')
# Pipelines that memory latency would slow down.
ROWS = re.compile(r'Softmax|Reduce|normalisation')
LOAD = re.compile(r'(flat|global|buffer)_load_')
SKIPPED = 77


def skip(why):
    print(f'skipped: {why}')
    sys.exit(SKIPPED)


def loops(assembly):
    """The innermost loops: lists of mnemonics."""
    lines, labels, back = [], {}, []
    for text in assembly.splitlines():
        label = re.match(r'(BB\d+):', text)
        if label:
            labels[label[1]] = len(lines)
            continue
        words = text.split()
        if not words or words[0].startswith((';', '(')):
            continue
        if len(words) > 1 and words[1] in labels and 'branch' in words[0]:
            back.append((labels[words[1]], len(lines)))
        lines.append(words[0])
    return [lines[begin:end + 1] for begin, end in back
            if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back)]


def fma_share(assembly):
    """Multiply-adds per instruction of the innermost loop that has most of them; None: unknown."""
    if 's_endpgm' not in assembly:
        return None
    best = max(loops(assembly), default=[],
               key=lambda loop: sum(bool(FMA.match(word)) for word in loop))
    count = sum(bool(FMA.match(word)) for word in best)
    return round(count / len(best), 3) if count else 0.0


def loads_at_once(assembly):
    """The most loads between two waits for memory, in program order."""
    best = count = 0
    for text in assembly.splitlines():
        words = text.split()
        if words and LOAD.match(words[0]):
            count += 1
            best = max(best, count)
        elif words and words[0] == 's_waitcnt' and 'vmcnt' in text:
            count = 0
    return best


def figures_of(family, driver, pipeline):
    raw = pipeline['statistics']
    waves = raw['Subgroups per SIMD']
    # Mesa 22.3 counts a wave of 64 lanes as two where the hardware can run waves of 32.
    if 'Mesa 22.3' in driver and family not in ('polaris10', 'vega10'):
        waves = waves * 32 // max(pipeline['subgroup'], 32)
    figures = {
        'vgprs': raw['VGPRs'], 'sgprs': raw['SGPRs'],
        'spilled': raw['Spilled VGPRs'] + raw['Spilled SGPRs'], 'scratch': raw['Scratch size'],
        'lds': raw['LDS size'], 'code': raw['Code size'], 'waves': waves,
    }
    if HEAVY.match(pipeline['name']):
        figures['fma'] = fma_share(pipeline['assembly'])
    if ROWS.match(pipeline['name']):
        figures['loads'] = loads_at_once(pipeline['assembly'])
    return figures


def run(program, name, *options):
    environment = {**os.environ, 'RADV_FORCE_FAMILY': name, 'LC_ALL': 'C'}
    environment.setdefault('VK_ICD_FILENAMES', '/usr/share/vulkan/icd.d/radeon_icd.x86_64.json')
    environment['VK_DRIVER_FILES'] = environment['VK_ICD_FILENAMES']
    return subprocess.run([program, *options], env=environment, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=300)


def report_of(program, family, *options):
    """Run the program for a family. Return: what it prints."""
    for name in FAMILIES[family]:
        done = run(program, name, *options)
        if done.returncode == SKIPPED:
            skip(done.stderr.decode().strip().removeprefix('skipped: '))
        if done.returncode >= 0:
            break
        # RADV aborts on an unknown family.
    if done.returncode:
        sys.exit(f'{family}: {program} ended with {done.returncode}: {done.stderr.decode()}')
    report = json.loads(done.stdout)
    if 'RADV' not in report['device']:
        skip(f'{report["device"]} is not RADV without a card')
    return report


def measure(program, family, folder):
    """Return: figures by pipeline."""
    report = report_of(program, family)
    figures = {}
    for pipeline in report['pipelines']:
        key = f'{pipeline["name"]} {pipeline["constants"]}'
        while key in figures:
            key += "'"
        figures[key] = figures_of(family, report['driver'], pipeline)
        if folder:
            path = re.sub(r'[^a-zA-Z0-9]+', '-', f'{family}-{key}').strip('-')
            with open(os.path.join(folder, path + '.s'), 'w', encoding='utf-8') as file:
                file.write(pipeline['assembly'])
    return figures


def names_of(key):
    """The figures of a pipeline in their order."""
    return FIGURES + ['fma'] * bool(HEAVY.match(key)) + ['loads'] * bool(ROWS.match(key))


def read_record(path):
    """Return: the driver, digests by family, and figures by family and pipeline."""
    with open(path, encoding='utf-8') as file:
        record = json.load(file)
    return {'driver': record['driver'], 'digests': dict(zip(record['families'], record['digests'])), 'families': {
        family: {key: dict(zip(names_of(key), columns[i])) for key, columns in record['pipelines'].items()
                 if columns[i]}
        for i, family in enumerate(record['families'])}}


def write_record(path, record):
    """A line for each pipeline, a list for each family: for people who read what a change did to it."""
    families = record['families']
    rows = {key: [[pipelines[key][name] for name in names_of(key)] if key in pipelines else []
                  for pipelines in families.values()]
            for key in dict.fromkeys(key for pipelines in families.values() for key in pipelines)}
    with open(path, 'w', encoding='utf-8') as file:
        file.write(f'{{"driver": {json.dumps(record["driver"])}, "families": {json.dumps(list(families))},\n'
                   f'"digests": {json.dumps([record["digests"][family] for family in families])},\n'
                   f'"figures": {json.dumps(FIGURES + ["fma or loads"])}, "pipelines": {{\n')
        file.write(',\n'.join(f' {json.dumps(key)}: {json.dumps(row)}' for key, row in rows.items()))
        file.write('}}\n')


def print_table(family, driver, pipelines):
    print(f'{family} ({driver})')
    print(f'  {"pipeline":38} {"VGPRs":>5} {"SGPRs":>5} {"spill":>5} {"LDS":>6} {"code":>6} '
          f'{"waves":>5} {"FMA":>5}')
    for key, f in pipelines.items():
        share = f.get('fma')
        print(f'  {key:38} {f["vgprs"]:5} {f["sgprs"]:5} {f["spilled"]:5} {f["lds"]:6} '
              f'{f["code"]:6} {f["waves"]:5} {"" if share is None else f"{share:5.2f}"}')


def always(key, figures):
    """What is wrong under any driver."""
    if figures['spilled'] or figures['scratch']:
        yield f'{figures["spilled"]} registers spilled, {figures["scratch"]} bytes of scratch'
    if HEAVY.match(key) and figures['waves'] < MIN_WAVES:
        yield f'{figures["waves"]} waves, not {MIN_WAVES}'


def since(old, new):
    """What is wrong, and what is worth saying, beside the record."""
    wrong, said = [], []
    if new['waves'] < old['waves']:
        wrong.append(f'{new["waves"]} waves, {old["waves"]} before')
    if (new.get('fma') or 0) < (old.get('fma') or 0) - FMA_TOLERANCE:
        wrong.append(f'{new["fma"]} multiply-adds per instruction of the inner loop, '
                     f'{old["fma"]} before')
    if new.get('loads', 0) < old.get('loads', 0):
        wrong.append(f'{new["loads"]} loads at once, {old["loads"]} before')
    if new['vgprs'] > old['vgprs'] + VGPRS_TOLERANCE:
        said.append(f'{new["vgprs"]} vector registers, {old["vgprs"]} before')
    return wrong, said


def judge(record, measured, driver):
    """Return: what is wrong, and what is worth saying."""
    same = record['driver'] == driver
    wrong, said = [], []
    if not same:
        said.append(f'compared by the fixed rules alone: the record is of {record["driver"]}, '
                    f'this is {driver}')
    for family, pipelines in measured.items():
        before = record['families'].get(family, {})
        for key, figures in pipelines.items():
            where = f'{family}, {key}: '
            wrong += [where + what for what in always(key, figures)]
            if not same:
                continue
            if key not in before:
                said.append(where + 'not on record')
                continue
            worse, noted = since(before[key], figures)
            wrong += [where + what for what in worse]
            said += [where + what for what in noted]
        if same:
            said += [f'{family}, {key}: on record, and gone' for key in before
                     if key not in pipelines]
    return wrong, said


def is_known(record, family, report):
    """Return True if the record has the figures of these pipelines under this driver."""
    return report['driver'] == record['driver'] and report['digest'] == record['digests'].get(family)


def check_itself():
    """The rules, on figures that there are not."""
    good = {'vgprs': 40, 'spilled': 0, 'scratch': 0, 'waves': 6, 'fma': 0.7}

    def judged(driver='one', key='MatMul', **changes):
        record = {'driver': 'one', 'families': {'a': {'MatMul': good, 'Add': good}}}
        found = {'MatMul': good, 'Add': good, key: {**good, **changes}}
        return tuple(map(len, judge(record, {'a': found}, driver)))

    assert judged() == (0, 0)
    assert judged(spilled=1) == (1, 0) and judged('two', 'Add', scratch=4) == (1, 1)
    assert judged(waves=5) == (1, 0) and judged(waves=4) == (2, 0)
    assert judged('two', waves=5) == (0, 1) and judged('two', waves=4) == (1, 1)
    assert judged('two', 'Add', waves=1) == (0, 1)
    assert judged(vgprs=44) == (0, 0) and judged(vgprs=48) == (0, 1)
    assert judged(fma=0.69) == (0, 0) and judged(fma=0.6) == (1, 0)
    assert judged(key='Conv') == (0, 1) and judged(key='Conv', waves=4) == (1, 1)
    text = """BB0:
	s_mov_b32 s0, s1                ; 00
BB1:
	v_mov_b32_e32 v0, v1            ; 00
BB2:
	v_mac_f32_e32 v0, v1, v2        ; 00
	s_cbranch_scc1 BB4              ; 00
BB3:
	v_add_u32_e32 v0, v1, v2        ; 00
	s_branch BB2                    ; 00
BB4:
	s_cbranch_scc1 BB1              ; 00
	s_endpgm                        ; 00
"""
    record = {'driver': 'one', 'digests': {'a': '1', 'b': '2'}}
    known = [is_known(record, family, {'driver': driver, 'digest': digest})
             for family, driver, digest in (('a', 'one', '1'), ('a', 'two', '1'), ('a', 'one', '2'), ('c', 'one', '1'))]
    assert known == [True, False, False, False]
    assert fma_share(text) == 0.25 and fma_share('unavailable') is None


def main():
    check_itself()
    parser = argparse.ArgumentParser()
    parser.add_argument('--write', action='store_true')
    parser.add_argument('--assembly', metavar='FOLDER')
    parser.add_argument('--families', default=','.join(FAMILIES))
    parser.add_argument('--known', action='store_true')
    parser.add_argument('program')
    parser.add_argument('record')
    options = parser.parse_args()
    families = options.families.split(',')
    if not set(families) <= set(FAMILIES) or options.write and (options.known or families != list(FAMILIES)):
        parser.error(f'--families: {options.families}')
    if options.assembly:
        os.makedirs(options.assembly, exist_ok=True)

    measured, digests, driver = {}, {}, ''
    record = {} if options.write else read_record(options.record)
    for family in families:
        report = report_of(options.program, family, '--digest')
        driver, digests[family] = report['driver'], report['digest']
        if options.known and is_known(record, family, report):
            print(f'{family}: the driver and the pipelines are those of the record')
            continue
        measured[family] = measure(options.program, family, options.assembly)
        print_table(family, driver, measured[family])
    if options.write:
        write_record(options.record, {'driver': driver, 'digests': digests, 'families': measured})
        record = read_record(options.record)
        assert (record['families'], record['digests']) == (measured, digests)
    wrong, said = judge(record, measured, driver)
    if options.known and record['driver'] == driver:
        said += [f'{family}: pipelines have changed; with a new record this test takes a second' for family in measured]
    for line in said:
        print(f'note: {line}')
    for line in wrong:
        print(f'WRONG: {line}')
    if (wrong or said) and not options.write and record['driver'] == driver:
        print('If that is as it should be: '
              f'python3 {sys.argv[0]} --write {options.program} {options.record}')
    sys.exit(1 if wrong else 0)


main()
