#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documents in Markdown agree with the tree.

    readme.py ROOT          checks README.md and the other documents at the top and in doc/
    readme.py --self-test   checks that each disagreement is found

README.md has at most 160 lines. Its first program is the file that the build compiles. Files that a document
names exist, options of brokerd are in its table, and the rooms in doc/design.md are the folders of broker/.
"""
import os
import re
import sys

import tree

DESIGN = 'doc/design.md'
MAX_README_LINES = 160
FIRST = 'tools/first-program.c'
OPTIONS = 'broker/daemon/options-table.c'
TOPS = ('.ci', 'broker', 'doc', 'libclient', 'shaders', 'shm', 'tests', 'tools')


def mentioned_paths(text, folder=''):
    """Return the files of this tree that a text in a folder names, including those in commands."""
    found = {os.path.normpath(os.path.join(folder, path))
             for path in re.findall(r'\]\(([A-Za-z.][^):#]*)\)', text)}
    for match in re.finditer(r'(?<![\w/.$-])((?:%s)/[\w./*-]*\w)' % '|'.join(map(re.escape, TOPS)),
                             text):
        found.add(match.group(1))
    return sorted(found)


def check(root):
    problems = []
    files = set(tree.files(root))
    folders = {os.path.dirname(path) for path in files}
    folders |= {os.path.dirname(folder) for folder in folders}
    for name in sorted(path for path in files if re.fullmatch(r'(doc/)?[^/]+\.md', path)):
        text = tree.read(root, name)
        folder = os.path.dirname(name)
        for path in mentioned_paths(text, folder):
            # A program is named by the path of its source without suffix.
            if '*' not in path and path.rstrip('/') not in folders and \
                    path not in files and path + '.c' not in files:
                problems.append(f'{name}: {path} does not exist')
        text = re.sub(r'```c\n.*?```', '', text, flags=re.DOTALL)
        options = tree.read(root, OPTIONS) if OPTIONS in files else ''
        for option in sorted(set(re.findall(r'brokerd[^\n`]* (--[a-z-]+)', text))
                             | set(re.findall(r'`(--[a-z-]+)[=`]', text))):
            if f'{{"{option[2:]}", ' not in options:
                problems.append(f'{name}: brokerd has no option {option}')

    readme = tree.read(root, 'README.md') if 'README.md' in files else ''
    blocks = re.findall(r'```c\n(.*?)```', readme, re.DOTALL)
    if not blocks or FIRST not in files:
        problems.append('README.md: no first program')
    elif blocks[0] != tree.read(root, FIRST):
        problems.append(f'README.md: the first program is not {FIRST}')

    if readme.count('\n') > MAX_README_LINES:
        problems.append(f'README.md: {readme.count(chr(10))} lines, at most {MAX_README_LINES}')

    design = tree.read(root, DESIGN) if DESIGN in files else ''
    drawn = set(re.findall(r'^  ([a-z]+)/ ', design, re.MULTILINE))
    there = {path.split('/')[1] for path in files if re.match(r'broker/[a-z]+/', path)}
    for room in sorted(drawn ^ there):
        problems.append(f'{DESIGN}: broker/{room} is ' + (
            'drawn but not there' if room in drawn else 'there but not drawn'))
    return problems


def main():
    if sys.argv[1:] == ['--self-test']:
        tree.self_test(check, CASES)
    tree.report(check(sys.argv[1]), len(mentioned_paths(tree.read(sys.argv[1], 'README.md'))),
                'files named in README.md')


GOOD = {
    'README.md': '`tools/demo` and `--gpu=none`\n```c\n/* brokerd --x */\n```\n'
                 'brokerd --help\n[x](LICENSE) https://a.b/tools/none\n',
    DESIGN: '  cpu/   kernels\n  daemon/  the program\n[x](../LICENSE)\n',
    'HACKING.md': 'meson test -C build --suite unit\n', FIRST: '/* brokerd --x */\n', 'tools/demo': '',
    'LICENSE': '', 'broker/cpu/a.c': '',
    OPTIONS: '\t{"gpu", NULL,\n\t{"help", NULL,\n',
}
README = GOOD['README.md']

CASES = [
    ('good', GOOD, None),
    ('program', {**GOOD, FIRST: 'int b;\n'}, 'first program is not'),
    ('no program', {**GOOD, 'README.md': README.replace('```c\n/* brokerd --x */\n```\n', '')},
     'no first program'),
    ('path', {**GOOD, 'README.md': README + '`tools/nothing`\n'}, 'tools/nothing does not exist'),
    ('link', {**GOOD, 'README.md': README + '[x](NOTHING.md)\n'}, 'NOTHING.md does not exist'),
    ('option', {**GOOD, 'README.md': README + '`--gpus=none`\n'}, 'no option --gpus'),
    ('command', {**GOOD, 'HACKING.md': 'brokerd --gpu none --frob\n'}, 'no option --frob'),
    ('room drawn', {**GOOD, DESIGN: GOOD[DESIGN] + '  attic/   things\n'}, 'drawn but not there'),
    ('long', {**GOOD, 'README.md': README + '\n' * 160}, 'at most 160'),
    ('link in doc', {**GOOD, DESIGN: GOOD[DESIGN] + '[x](LICENSE)\n'}, 'doc/LICENSE does not exist'),
    ('room not drawn', {**GOOD, 'broker/attic/a.c': ''}, 'there but not drawn'),
]

if __name__ == '__main__':
    main()
