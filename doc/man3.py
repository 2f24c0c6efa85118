#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages of the library, from the comments in its headers.

    man3.py ROOT FOLDER    writes every page into FOLDER
    man3.py ROOT --names   prints "PAGE NAME" for each function and macro that has no page of its own name
    man3.py --self-test    checks that what is missing or unknown is noticed

What the headers say is said once, there. A page is a list of functions, types and macros; a name of a
public header that no page lists, or that does not exist, is an error, and so is a page without its
example in doc/man3, which tests/integration/documents.py compiles.
"""
import os
import re
import sys

CLIENT = 'libclient/ringbroker.h'
ADMIN = 'libclient/ringbroker/admin.h'
LEASE = 'libclient/ringbroker/lease.h'
ONNX = 'libclient/ringbroker/onnx.h'
STATS = 'shm/ringbroker/stats.h'
DELAY = 'shm/ringbroker/stats-delay.h'
RINGS = 'shm/ringbroker/stats-rings.h'
ABI = 'shm/ringbroker/abi.h'
HEADERS = (CLIENT, ADMIN, LEASE, ONNX, STATS, DELAY, RINGS, ABI)
# As a page's names: everything in that header that no other page lists.
REST = None

# name: (summary, header to include, [(file, names of the declarations)])
PAGES = {
    'rbk_connect': ('connect to a ringbroker daemon', 'ringbroker.h', [(CLIENT, [
        '#define RBK_ERROR_BYTES', 'struct rbk_error', '#define RBK_CONNECT_NO_REATTACH', 'struct rbk_reattachment',
        'struct rbk_options', 'rbk_connect', 'rbk_disconnect', 'rbk_features',
        'rbk_n_reattached', 'rbk_broker_name', 'rbk_fd',
        'enum rbk_device_kind', 'struct rbk_device', 'rbk_devices', 'rbk_get_devices', 'struct rbk_stats', 'rbk_stats', 'rbk_get_stats',
        'rbk_reason_name'])]),
    'rbk_tenant': ('what a session\'s tenant may have, and has', 'ringbroker.h', [(CLIENT, [
        'struct rbk_use', 'struct rbk_tenant_device', 'struct rbk_tenant', 'rbk_tenant', 'rbk_get_tenant'])]),
    'rbk_arena': ('memory that devices read and write in place', 'ringbroker.h', [(CLIENT, [
        '#define RBK_REF_INVALID', 'rbk_arena_new', '#define RBK_ARENA_MEMFD', 'rbk_arena_new_flags', 'rbk_arena_free', 'rbk_arena_data', 'rbk_arena_bytes',
        'rbk_arena_alloc', 'rbk_arena_reset', 'rbk_arena_seal', 'rbk_arena_ref', 'rbk_ref']),
        (ABI, ['#define RBK_REF_OFFSET_BITS'])]),
    'rbk_builder': ('describe a computation', 'ringbroker.h', [(CLIENT, [
        '#define RBK_DIM_COUNT', '#define RBK_RANK_INFERRED', '#define RBK_TENSOR_NONE',
        'rbk_builder_new', 'rbk_builder_free', 'rbk_builder_error', 'rbk_builder_input',
        'rbk_builder_output', 'rbk_builder_state', 'rbk_builder_scratch', 'rbk_builder_constant',
        'rbk_builder_node', 'rbk_builder_unary', 'rbk_builder_binary', 'rbk_builder_attr_int',
        'rbk_builder_attr_float', 'rbk_builder_attr_ints', 'rbk_builder_attr_floats',
        'rbk_builder_attr_string', 'rbk_builder_pin_device', 'rbk_builder_disable_fusion'])]),
    'rbk_plan': ('prepared computations', 'ringbroker.h', [(CLIENT, [
        'rbk_plan_new', 'rbk_plan_free', 'rbk_plan_id', 'struct rbk_plan_info', 'rbk_plan_info',
        'struct rbk_plan_memory', 'rbk_plan_memory', 'rbk_get_plan_memory'])]),
    'rbk_ring': ('submit tasks and consume completions', 'ringbroker.h', [(CLIENT, [
        'rbk_ring_new', 'rbk_ring_free', 'rbk_ring_set_spin_ns', 'rbk_get_sqe', 'rbk_submit',
        'rbk_submit_and_wait', 'rbk_peek_cqe', 'rbk_wait_cqe', 'rbk_wait_cqe_timeout',
        'rbk_peek_batch_cqe', 'rbk_cq_advance', 'rbk_sq_ready', 'rbk_sq_space_left', 'rbk_cq_ready',
        'rbk_cq_at', 'rbk_ring_fd', 'rbk_ring_arm', 'rbk_cqe_get_data64', 'rbk_cqe_get_data',
        'rbk_cqe_seen', '#define rbk_for_each_cqe'])]),
    'rbk_prep_run': ('fill in submission entries', 'ringbroker.h', [
        (CLIENT, ['rbk_prep_nop', 'rbk_prep_run', 'rbk_prep_run_table', 'rbk_prep_cancel',
                  'rbk_prep_barrier', 'rbk_prep_prefetch', 'rbk_prep_evict', 'rbk_sqe_set_data64',
                  'rbk_sqe_set_data', 'rbk_sqe_set_flags', 'rbk_sqe_set_strategy',
                  'rbk_sqe_set_wait_memory', 'rbk_sqe_set_priority', 'rbk_sqe_set_deadline_us',
                  'rbk_sqe_index', 'rbk_sqe_set_after', 'rbk_sqe_check']),
        (ABI, ['enum rbk_op', '#define RBK_SQE_LINK', 'enum rbk_strategy', '#define RBK_STRATEGY_COUNT',
               'enum rbk_priority', 'struct rbk_sqe', 'enum rbk_reason', '#define RBK_CQE_DEADLINE_MISSED',
               '#define RBK_CQE_EXPLORED', 'struct rbk_cqe'])]),
    'rbk_stats_map': ('statistics pages', 'ringbroker/stats.h', [
        (CLIENT, ['rbk_stats_map', 'rbk_stats_unmap', 'rbk_stats_reset', '#define RBK_ASK', 'rbk_force_cpu']),
        (STATS, ['enum rbk_stats_whose', 'struct rbk_stats_view', 'rbk_stats_view', 'rbk_stats_count',
                 'rbk_stats_used', 'rbk_stats_record', 'rbk_stats_load', 'rbk_stats_copy', 'rbk_stats_copy_record',
                 'rbk_stats_decision', 'rbk_stats_segment', 'rbk_stats_slice', 'rbk_stats_refused', 'rbk_stats_bucket',
                 'rbk_stats_bucket_ns']),
        (RINGS, REST)]),
    'rbk_admin_connect': ('administer a ringbroker daemon', 'ringbroker/admin.h', [(ADMIN, [
        'rbk_admin_connect', 'rbk_admin_socket_path', 'rbk_admin_set', 'struct rbk_admin_evict', 'rbk_admin_evict',
        'enum rbk_drain', 'struct rbk_admin_drained', 'rbk_admin_drain_tenant',
        'rbk_admin_drain_device', 'enum rbk_restart', 'struct rbk_admin_restart',
        'rbk_admin_restart', 'rbk_admin_log_level', 'struct rbk_admin_limit',
        'rbk_admin_limit', 'struct rbk_operator', 'rbk_catalogue'])]),
    'rbk_lease_open': ('device memory for programs that drive a device themselves',
        'ringbroker/lease.h', [
        (LEASE, ['#define RBK_LEASE_REGION_BYTES', 'struct rbk_lease_options', 'rbk_lease_open', 'rbk_lease_close',
                 'rbk_lease_number', 'rbk_lease_device', 'rbk_lease_page', 'struct rbk_lease_use',
                 'rbk_lease_take', 'rbk_lease_give', 'rbk_lease_object_add',
                 'rbk_lease_object_drop', 'rbk_lease_resize', '#define RBK_LEASE_MAX_SHARE',
                 'rbk_lease_share', 'rbk_lease_sleep', 'rbk_lease_await_sleep', 'rbk_lease_report_moved', 'rbk_lease_set_cgroup',
                 'rbk_lease_restore']),
        (ABI, ['struct rbk_lease_page', '#define RBK_LEASE_SET_PRIORITY', 'enum rbk_lease_sleep'])]),
    'rbk_onnx_load': ('read a model from an ONNX file', 'ringbroker/onnx.h', [(ONNX, [
        'rbk_onnx_load', 'rbk_onnx_load_bytes', 'rbk_onnx_free', 'struct rbk_onnx_operator',
        'rbk_onnx_operator', 'rbk_onnx_opset', 'rbk_onnx_n_nodes', 'enum rbk_onnx_dtype',
        'rbk_onnx_dtype_name', 'rbk_onnx_dtype_bytes', '#define RBK_ONNX_MAX_RANK',
        'struct rbk_onnx_value', 'rbk_onnx_n_inputs', 'rbk_onnx_input', 'rbk_onnx_n_outputs', 'rbk_onnx_output'])]),
    'rbk_onnx_compile': ('make a plan of an ONNX model', 'ringbroker/onnx.h', [(ONNX, [
        'rbk_onnx_set_dim', 'rbk_onnx_set_shape', 'struct rbk_onnx_tensor', 'rbk_onnx_set_input',
        '#define RBK_ONNX_OPT_FOLD', '#define RBK_ONNX_OPT_NORM', 'struct rbk_onnx_options',
        'rbk_onnx_compile', 'struct rbk_onnx_refusal', 'rbk_onnx_n_refusals', 'rbk_onnx_refusal', 'struct rbk_onnx_bound', 'rbk_onnx_n_bound', 'rbk_onnx_bound',
        'struct rbk_onnx_step', 'rbk_onnx_n_steps', 'rbk_onnx_step', 'rbk_onnx_plan'])]),
    'rbk_onnx_tensor_load': ('read a tensor from a file', 'ringbroker/onnx.h', [(ONNX, [
        'rbk_onnx_tensor_load', 'rbk_onnx_tensor_load_bytes', 'rbk_onnx_tensor_free'])]),
    'rbk_abi': ('constants and types of the protocol', 'ringbroker/abi.h', [(ABI, REST)]),
    'rbk_stats_page': ('records of statistics pages', 'ringbroker/stats.h', [(STATS, REST), (DELAY, REST)]),
}
# The page that begins with a header's first comment; other pages of that header refer to this page.
INTRODUCED = {ADMIN: 'rbk_admin_connect', LEASE: 'rbk_lease_open', ONNX: 'rbk_onnx_load'}
SEE_ALSO = 'brokerd(8), ringbroker(7)'
NAME = re.compile(r'\b(rbk_\w+)\s*\(')
DEFINE = re.compile(r'#define ((?:RBK|rbk)_\w+)[ (]')
ITEM = re.compile(r'^ {2,}(-E[A-Z0-9]+(?:, -E[A-Z0-9]+)*|\S+)(?: {2,}|(?<=[A-Z]) +)(\S.*)$')


class Declaration:
    """The declarations of a header under one comment, or a comment that stands alone."""

    def __init__(self, comment):
        self.comment = comment
        self.names, self.texts = [], []

    def add(self, text):
        if text.startswith('#define'):
            name = '#define ' + DEFINE.match(text).group(1)
        elif text.startswith(('struct', 'enum')) and '{' in text:
            name = ' '.join(text.split()[:2])
        else:
            found = NAME.search(text)
            name = found.group(1) if found else None
        if name:
            self.names.append(name)
            self.texts.append(text)


def comment_lines(text):
    lines = text[2:-2].strip('\n').split('\n')
    return [re.sub(r'^ \* ?', '', line).rstrip() for line in lines if line.strip() not in ('', '*')
            or line.strip() == '*']


def declarations(text):
    """Return the comments and declarations of a header, in its order."""
    result, lines, i = [], text.split('\n'), 0
    current = Declaration([])
    while i < len(lines):
        line = lines[i]
        if line.startswith('/*'):
            start = i
            while '*/' not in lines[i]:
                i += 1
            current = Declaration(comment_lines('\n'.join(lines[start:i + 1]).split('*/')[0] + '*/'))
            result.append(current)
        elif line.startswith('extern "C"'):
            pass
        elif DEFINE.match(line):
            start = i
            while lines[i].endswith('\\') or DEFINE.match((lines + [''])[i + 1]):
                i += 1
            current.add('\n'.join(lines[start:i + 1]))
        elif line.startswith('#'):
            while lines[i].endswith('\\'):
                i += 1
        elif line and not line[0].isspace() and line[0] != '}':
            start = i
            while not (lines[i].endswith(';') and (lines[i][0] == '}' or '{' not in lines[start])
                       or lines[i] == '}' or lines[i].endswith('};')):
                i += 1
                if i == len(lines):
                    raise SystemExit(f'man3.py: no end of: {line}')
                if lines[i] == '{':
                    lines[start] += '{'
            current.add(re.sub(r'\{$', '', '\n'.join(lines[start:i + 1])) if lines[i] != '}'
                        else '\n'.join(lines[start:i + 1]).split('\n{')[0].rstrip('{') + ';')
        i += 1
    return result


def plain(text):
    """Escape text for roff."""
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return '\\&' + text if text.startswith(('.', "'")) else text


def prose(text):
    text = plain(text)
    text = re.sub(r'@(\w+)', r'\\fI\1\\fP', text)
    return re.sub(r'\b(rbk_\w+)\(\)', r'\\fB\1\\fP()', text)


def paragraphs(lines):
    """Return a comment as roff: paragraphs, lists of values, examples."""
    result, kind = [], None
    for line in lines:
        item = ITEM.match(line)
        if not line.strip():
            result.append('.fi\n.RE\n.PP' if kind == 'example' else '.PP')
            kind = None
        elif line.startswith('\t'):
            if kind != 'example':
                result.append('.PP\n.RS\n.nf')
            kind = 'example'
            result.append(plain(line.expandtabs(8)[8:]))
        elif item:
            result.append(f'.TP\n.B {plain(item.group(1))}\n{prose(item.group(2))}')
            kind = 'item'
        elif kind == 'item' and line.startswith('  ') and not line.lstrip().startswith('-E'):
            result.append(prose(line.strip()))
        else:
            if kind in ('item', 'example'):
                result.append('.fi\n.RE' if kind == 'example' else '.PP')
            kind = 'text'
            result.append(prose(line.strip()))
    if kind == 'example':
        result.append('.fi\n.RE')
    return '\n'.join(result)


def literal(text):
    return '.nf\n' + '\n'.join(plain(line.expandtabs(8)) for line in text.split('\n')) + '\n.fi'


def title_of(one, i):
    if one.names[i].startswith('#define'):
        return ', '.join(DEFINE.findall(one.texts[i]))
    return one.names[i] + ('' if ' ' in one.names[i] else '()')


def introduction(name, headers):
    """Return the first comment of the page's header without its title, or a reference to the page that
    has it."""
    for path, _ in PAGES[name][2]:
        first = INTRODUCED.get(path)
        if first == name:
            comment = headers[path][1].comment
            return [paragraphs(comment[2:]), '.PP']
        if first:
            return [f'What all of these have in common is in \\fB{first}\\fP(3).']
    return []


def rest(path, headers):
    """Return the names of a header that no page lists."""
    listed = {name for _, _, parts in PAGES.values() for _, names in parts for name in names or ()}
    return [name for one in headers[path] for name in one.names if name not in listed]


def parts_of(name, headers):
    return [(path, rest(path, headers) if names is REST else names) for path, names in PAGES[name][2]]


def errors_of(comment):
    """Return the errnos that a comment lists, with their meanings, and those that it only mentions."""
    listed, mentioned, inside = [], [], False
    for line in comment:
        item = ITEM.match(line)
        if item and item.group(1).startswith('-E'):
            listed.append([item.group(1), item.group(2)])
            inside = True
        elif inside and line.startswith('   '):
            listed[-1][1] += ' ' + line.strip()
        else:
            inside = False
            mentioned += re.findall(r'-E[A-Z0-9]{2,}\b', line)
    known = {code for codes, _ in listed for code in codes.split(', ')}
    return listed, [code for code in dict.fromkeys(mentioned) if code not in known]


def errors_section(declared):
    """Return the section ERRORS, from pairs of a title and a comment."""
    items, mentions = [], []
    for title, comment in declared:
        listed, mentioned = errors_of(comment)
        items += [f'.TP\n.B {plain(codes)}\n{plain(title)}: {prose(text)}' for codes, text in listed]
        if mentioned:
            mentions.append(f'{prose(title)}: {plain(", ".join(mentioned))}; see its description.')
    first = 'Errors that any call may return are in \\fBringbroker\\fP(7).'
    if not items and not mentions:
        first += '\nThese calls and macros add none.'
    return '\n'.join([first, *items, *(['.PP\n' + '\n.br\n'.join(mentions)] if mentions else [])])


def example_of(name, examples):
    """Return the example of a page, without the line of its licence."""
    path = os.path.join(examples, name.replace('_', '-') + '.c')
    try:
        with open(path, encoding='utf-8') as file:
            first, _, text = file.read().partition('\n')
    except FileNotFoundError:
        raise SystemExit(f'man3.py: the page {name} has no example {path}') from None
    return text.strip('\n') if 'SPDX' in first else first + '\n' + text.rstrip('\n')


def page(name, headers, examples):
    what, include, _ = PAGES[name]
    parts = parts_of(name, headers)
    listed = [n for _, names in parts for n in names if ' ' not in n]
    synopsis, description, declared = [], [], []
    for path, names in parts:
        missing = set(names)
        for one in headers[path]:
            here = [i for i, n in enumerate(one.names) if n in names]
            if not here:
                continue
            missing -= {one.names[i] for i in here}
            for i in here:
                if ' ' not in one.names[i]:
                    synopsis.append(literal(re.sub(r'^static inline ', '', one.texts[i])))
            title = ', '.join(title_of(one, i) for i in here)
            description.append(f'.SS {plain(title)}')
            declared.append((title, one.comment))
            if one.comment:
                description.append(paragraphs(one.comment))
            for i in here:
                if ' ' in one.names[i]:
                    description.append('.PP\n.RS\n' + literal(one.texts[i]) + '\n.RE')
        if missing:
            raise SystemExit(f'man3.py: {path} does not declare {", ".join(sorted(missing))}, which '
                             f'the page {name} lists')
    library = 'ringbroker\\-onnx' if include == 'ringbroker/onnx.h' else 'ringbroker'
    others = ', '.join(f'{other}(3)' for other in sorted(PAGES) if other != name)
    first = [name] if name not in listed else []
    return '\n'.join([
        '.\\" SPDX-License-Identifier: MIT',
        f'.TH {name} 3 "" "ringbroker" "ringbroker programmer\'s manual"',
        '.SH NAME', ', '.join(first + listed).replace('-', '\\-') + f' \\- {what}',
        '.SH LIBRARY', f'lib{library} (\\fB\\-l{library}\\fP, or \\fBpkg\\-config {library}\\fP)',
        '.SH SYNOPSIS', f'.nf\n.B #include <{include}>\n.fi\n.PP', '\n.PP\n'.join(synopsis),
        '.SH DESCRIPTION', *introduction(name, headers),
        'Errors are negative errno values; those that any of these functions may return, and what may',
        'be called from which thread, are in \\fBringbroker\\fP(7).',
        '\n'.join(description), '.SH ERRORS', errors_section(declared),
        '.SH EXAMPLES', literal(example_of(name, examples)), '.SH SEE ALSO', f'{others}, {SEE_ALSO}', ''])


def check_all_listed(headers):
    """Check that every function, type and macro of the public headers has a page."""
    listed = {name for _, _, parts in PAGES.values() for _, names in parts for name in names or ()}
    all_of = {path for _, _, parts in PAGES.values() for path, names in parts if names is REST}
    problems = []
    for path in HEADERS:
        for one in headers[path] if path not in all_of else ():
            problems += [f'man3.py: no page lists {name} of {path}' for name in one.names
                         if name not in listed]
    if problems:
        raise SystemExit('\n'.join(problems))


def read_headers(root):
    headers = {}
    for path in HEADERS:
        with open(os.path.join(root, path), encoding='utf-8') as file:
            headers[path] = declarations(file.read())
    return headers


def self_test():
    text = ('/* Alone. */\n\n/*\n * Does @it. Return: 0;\n *   -EIO  broken\n *         for good\n'
            ' * or more.\n *\n *\tint x;\n */\nint rbk_a(int it,\n\t  int b);\nint rbk_b(void);\n\n'
            '/* Fast. */\nstatic inline int rbk_c(void)\n{\n\treturn 1;\n}\n'
            '/* What. */\nstruct rbk_s {\n\tint a; /* one */\n};\n#define RBK_X(a) \\\n\t(a)\n'
            '/* Bits. */\n#define RBK_A 1 /* a */\n#define RBK_B \\\n\t2\n\nint rbk_d(void);\n')
    found = declarations(text)
    assert [one.names for one in found] == [[], ['rbk_a', 'rbk_b'], ['rbk_c'],
                                            ['struct rbk_s', '#define RBK_X'], ['#define RBK_A', 'rbk_d']], found
    assert title_of(found[4], 0) == 'RBK_A, RBK_B' and title_of(found[4], 1) == 'rbk_d()', found
    assert found[2].texts == ['static inline int rbk_c(void);'], found[2].texts
    assert found[1].texts[0] == 'int rbk_a(int it,\n\t  int b);'
    roff = paragraphs(found[1].comment)
    assert roff == ('Does \\fIit\\fP. Return: 0;\n.TP\n.B \\-EIO\nbroken\nfor good\n.PP\nor more.\n.PP\n'
                    '.PP\n.RS\n.nf\nint x;\n.fi\n.RE'), roff
    assert prose('.so it') == '\\&.so it' and prose('a\\b') == 'a\\eb'
    for path in (CLIENT, ADMIN, LEASE, ONNX):
        for new in ('int rbk_unheard_of(void);', '#define rbk_unheard_of(a) (a)',
                    'struct rbk_unheard_of {\n\tint a;\n};'):
            headers = {other: [] for other in HEADERS}
            headers[path] = declarations(f'/* New. */\n{new}\n')
            try:
                check_all_listed(headers)
            except SystemExit as error:
                assert 'rbk_unheard_of' in str(error)
            else:
                raise AssertionError('a name without a page was not noticed')
    # Names that no page lists are on the header's own page.
    headers = {other: [] for other in HEADERS}
    headers[ABI] = declarations('/* New. */\n#define RBK_NEW(i) (i)\n')
    assert parts_of('rbk_abi', headers) == [(ABI, ['#define RBK_NEW'])]
    try:
        example_of('rbk_tenant', '/nowhere')
    except SystemExit as error:
        assert 'no example' in str(error)
    else:
        raise AssertionError('a page without an example was not noticed')
    section = errors_section([('rbk_a()', ['Return: 0; -EBUSY: not now;', '  -EIO, -ENODEV  broken', '       for good'])])
    assert section.endswith('.TP\n.B \\-EIO, \\-ENODEV\nrbk_a(): broken for good\n.PP\n\\fBrbk_a\\fP(): '
                            '\\-EBUSY; see its description.'), section
    try:
        page('rbk_tenant', {CLIENT: []}, '/nowhere')
    except SystemExit as error:
        assert 'rbk_tenant' in str(error)
    else:
        raise AssertionError('a function that is no more was not noticed')


def main():
    if sys.argv[1:] == ['--self-test']:
        self_test()
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    headers = read_headers(sys.argv[1])
    check_all_listed(headers)
    if sys.argv[2] == '--names':
        for name in PAGES:
            for path, names in parts_of(name, headers):
                for one in headers[path]:
                    for i in [i for i, n in enumerate(one.names) if n in names]:
                        if one.names[i].startswith('#'):
                            others = DEFINE.findall(one.texts[i])
                        else:
                            others = [one.names[i]] if ' ' not in one.names[i] else []
                        for other in others:
                            if other != name:
                                print(name, other)
        return
    os.makedirs(sys.argv[2], exist_ok=True)
    for name in PAGES:
        with open(os.path.join(sys.argv[2], name + '.3'), 'w', encoding='utf-8') as file:
            file.write(page(name, headers, os.path.join(sys.argv[1], 'doc/man3')))


main()
