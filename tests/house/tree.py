# SPDX-License-Identifier: MIT
"""Functions that the house tests share: listing the source tree, and reporting."""
import os
import re
import subprocess
import sys
import tempfile


def files(root):
    """Return the paths below root, relative and sorted: files that git tracks or would add, else all files."""
    if os.path.exists(os.path.join(root, '.git')):
        try:
            out = subprocess.run(
                ['git', '-c', 'safe.directory=*', '-C', root, 'ls-files', '-z', '--cached',
                 '--others', '--exclude-standard'],
                check=True, stdout=subprocess.PIPE).stdout.decode()
            return sorted({path for path in out.split('\0')
                           if path and os.path.isfile(os.path.join(root, path))})
        except (OSError, subprocess.CalledProcessError):
            pass
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(('build', '.git'))
                      and not os.path.exists(os.path.join(folder, f, 'build.ninja'))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8', errors='replace', newline='') as file:
        return file.read()


# A comment, or a string or character literal up to its end or the end of the line.
COMMENT_OR_LITERAL = re.compile(
    r'/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:\\.|[^"\\\n])*["\n]?|\'(?:\\.|[^\'\\\n])*[\'\n]?', re.DOTALL)


def without_comments(text):
    """Return C text with comments and contents of literals blanked and lines kept, and the positions of
    // comments."""
    slashes = []

    def blank(match):
        token, at = match.group(), match.start()
        if token.startswith('//'):
            slashes.append(text.count('\n', 0, at) + 1)
            return ''
        if token[0] == '/':
            return '\n' * token.count('\n') or ' '
        # The name of an included file is kept.
        start = text.rfind('\n', 0, at) + 1
        is_include = text[start:at].replace(' ', '').startswith('#include')
        return token if is_include else token[0] * 2

    return COMMENT_OR_LITERAL.sub(blank, text), slashes


def report(problems, n_checked, what):
    """Print the problems and end the process; checking nothing is a failure, too."""
    for problem in problems:
        print(problem)
    if n_checked == 0:
        print(f'found no {what} to check')
    print(f'{n_checked} {what} checked, {len(problems)} problems')
    sys.exit(1 if problems or n_checked == 0 else 0)


def self_test(check, cases):
    """Run check(root) on small trees. A case is (name, {path: text}, expected part or None)."""
    n_failed = 0
    for name, tree, expected in cases:
        with tempfile.TemporaryDirectory() as root:
            for path, text in tree.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), 'w', encoding='utf-8', newline='') as file:
                    file.write(text)
            problems = check(root)
        if expected is None:
            good = not problems
        else:
            good = len(problems) == 1 and expected in problems[0]
        if not good:
            n_failed += 1
            print(f'{name}: expected {expected!r}, got {problems}')
    print(f'{len(cases)} cases, {n_failed} failed')
    sys.exit(1 if n_failed or not cases else 0)
