"""Names of other packages that their documentation does not promise, and that this service relies on.

Each name is used in one module, which says which versions were read. ``pyproject.toml`` admits no later major version.
To admit one: read it, run the tests with it, raise the bound, and change the module.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
import warnings
from importlib import metadata
from typing import Any

import pytest

from tests.support.pages import ROOT

#: By distribution, the modules that use the names, and these names: ``module:attribute``, or ``module:Class.method``,
#: or ``module:Class@attribute`` for an attribute that a method of the class or of its bases sets.
NAMES = {
    'gunicorn': {
        'placement/serving/addresses.py': [
            'gunicorn.systemd:SD_LISTEN_FDS_START',
            'gunicorn.systemd:listen_fds',
            'gunicorn.util:parse_address',
        ],
        'placement/serving/master.py': [
            'gunicorn.arbiter:Arbiter.manage_workers',
            'gunicorn.arbiter:Arbiter.reap_workers',
            'gunicorn.arbiter:Arbiter.reload',
            'gunicorn.arbiter:Arbiter.signal',
            'gunicorn.arbiter:Arbiter.spawn_worker',
            'gunicorn.arbiter:Arbiter.stop',
            'gunicorn.arbiter:Arbiter@master_pid',
            'gunicorn.arbiter:Arbiter@reexec_pid',
            'gunicorn.arbiter:Arbiter@systemd',
            'gunicorn.glogging:Logger.setup',
        ],
        'placement/serving/worker.py': [
            'gunicorn.workers.base:Worker.init_signals',
            'gunicorn.workers.base:Worker.load_wsgi',
            'gunicorn.workers.base:Worker.notify',
            'gunicorn.workers.base:Worker@PIPE',
            'gunicorn.workers.base:Worker@ppid',
            'gunicorn.workers.base:Worker@sockets',
        ],
    },
    'keystonemiddleware': {
        'placement/web/authentication.py': ['keystonemiddleware.auth_token:AuthProtocol@_token_cache'],
    },
    'oslo.log': {
        'placement/conf/__init__.py': ['oslo_log._options:list_opts'],
    },
    'oslo.policy': {
        'placement/web/policy.py': ['oslo_policy._parser:LOG'],
    },
    'prometheus-client': {
        'placement/observability/metrics.py': [
            'prometheus_client.values:MultiProcessValue',
            'prometheus_client.values:ValueClass',
        ],
    },
    'waitress': {
        'placement/serving/channel.py': [
            'waitress.channel:HTTPChannel.error_task_class',
            'waitress.channel:HTTPChannel.handle_close',
            'waitress.channel:HTTPChannel.handle_read',
            'waitress.channel:HTTPChannel.parser_class',
            'waitress.channel:HTTPChannel.received',
            'waitress.channel:HTTPChannel.service',
            'waitress.channel:HTTPChannel.task_class',
            'waitress.channel:HTTPChannel.write_soon',
            'waitress.channel:HTTPChannel@outbuf_lock',
            'waitress.channel:HTTPChannel@requests',
            'waitress.channel:HTTPChannel@sendbuf_len',
            'waitress.channel:HTTPChannel@total_outbufs_len',
            'waitress.channel:HTTPChannel@will_close',
            'waitress.server:BaseWSGIServer.channel_class',
            'waitress.server:BaseWSGIServer.pull_trigger',
            'waitress.server:BaseWSGIServer@task_dispatcher',
            'waitress.server:BaseWSGIServer@trigger',
        ],
        'placement/serving/socket_map.py': ['waitress.wasyncore:close_all', 'waitress.wasyncore:readwrite'],
        'placement/serving/tasks.py': [
            'waitress.parser:HTTPRequestParser.parse_header',
            'waitress.parser:HTTPRequestParser@expect_continue',
            'waitress.receiver:CHUNK_EXT_RE',
            'waitress.receiver:ONLY_HEXDIG_RE',
            'waitress.task:ErrorTask.execute',
            'waitress.task:Task.build_response_header',
            'waitress.task:Task.service',
            'waitress.task:Task.set_close_on_finish',
            'waitress.task:WSGITask.get_environment',
        ],
        'placement/serving/threads.py': [
            'waitress.task:ThreadedTaskDispatcher.add_task',
            'waitress.task:ThreadedTaskDispatcher.set_thread_count',
            'waitress.task:ThreadedTaskDispatcher@lock',
            'waitress.task:ThreadedTaskDispatcher@queue',
        ],
        'placement/serving/worker.py': [
            'waitress.task:ThreadedTaskDispatcher@active_count',
            'waitress.server:BaseWSGIServer.handle_accept',
            'waitress.wasyncore:file_dispatcher',
        ],
    },
}


def find_problem(name: str) -> str | None:
    """What is missing of a name of ``NAMES``; None if it is there."""
    module, _, path = name.partition(':')
    path, _, instance_attribute = path.partition('@')
    with warnings.catch_warnings(action='ignore'):
        # Some versions import eventlet.
        value: Any = importlib.import_module(module)
    for attribute in path.split('.'):
        if not hasattr(value, attribute):
            return f'{module}:{path}'
        value = getattr(value, attribute)
    if not instance_attribute or hasattr(value, instance_attribute):
        return None
    sources = ''.join(inspect.getsource(of_class) for of_class in value.__mro__ if of_class is not object)
    return None if re.search(rf'self\.{instance_attribute}\b[^=\n]* = ', sources) else name


@pytest.mark.parametrize('distribution', NAMES)
def test_every_private_name_exists(distribution: str) -> None:
    for module, names in NAMES[distribution].items():
        missing = [name for name in map(find_problem, names) if name is not None]
        assert not missing, (
            f'{distribution} {metadata.version(distribution)} has no {", ".join(missing)}, which'
            f' {module} uses: change this module, or exclude this version of {distribution} in pyproject.toml.'
        )


def test_a_missing_name_is_found() -> None:
    for name in ('waitress.task:Gone', 'waitress.task:Task.gone', 'waitress.task:Task@gone'):
        assert find_problem(name) == name


@pytest.mark.parametrize('distribution', NAMES)
def test_each_module_says_which_versions_were_read_and_no_later_ones_are_admitted(distribution: str) -> None:
    requirements = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['dependencies']
    (bounds,) = (text.removeprefix(distribution) for text in requirements if text.startswith(f'{distribution}>='))
    lower, upper = re.fullmatch(r'>=([0-9.]+),<([0-9]+)', bounds).groups()  # type: ignore[union-attr]
    for module in NAMES[distribution]:
        says = re.search(rf'read in {distribution} ([0-9.]+?)(?: to ([0-9.]+?))?[,.:]?\s', (ROOT / module).read_text())
        assert says is not None, f'{module} does not say which versions of {distribution} were read'
        newest = says[2] or says[1]
        assert (says[1], int(newest.partition('.')[0]) < int(upper)) == (lower, True)


def test_names_with_an_underscore_are_used_in_these_modules_only() -> None:
    """Ruff (SLF001) finds attributes; this finds imports."""
    imported = re.compile(r'^\s*(?:from|import) .*\b_(?!_)[a-z]', re.MULTILINE)
    modules = {
        str(path.relative_to(ROOT))
        for path in (ROOT / 'placement').rglob('*.py')
        if any('from placement' not in line[0] for line in imported.finditer(path.read_text()))
    }
    assert modules <= {module for names in NAMES.values() for module in names}
