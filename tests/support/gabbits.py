"""The YAML suites of ``gabbits/``, each as a list of requests to an application in this process.

The suites below ``gabbits/configured/`` need a configuration or a mount point that differs from the default;
``CONFIGURED`` says which. Those below ``gabbits/since-1.30/`` need the newest ``[placement] max_microversion``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import unittest
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from gabbi import case, handlers, suitemaker
from gabbi.handlers import jsonhandler
from jsonpath_ng.ext import parser as jsonpath

from tests.support import applications, documented, error_details

ROOT = pathlib.Path(__file__).parents[2] / 'gabbits'
HOST = 'placement.example.com'

#: The YAML loader of gabbi, or its counterpart in C, which is ten times as fast.
_LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)

# gabbi makes a parser anew for each JSONPath that it meets, most of which are the same few hundred. gabbi 4 takes this
# one; that of gabbi 3, until 2026.1 is the oldest supported OpenStack release, does not know all of the operators.
jsonhandler.json_parser.parse = functools.cache(jsonpath.parse)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a suite needs of its application: configuration overrides and the path it is mounted below."""

    overrides: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    prefix: str = ''


CONFIGURED = {
    'cors': Setting(overrides={'cors': {'allowed_origin': ['https://dashboard.example.com']}}),
    'cors-any': Setting(overrides={'cors': {'allowed_origin': ['*']}}),
    'mounted': Setting(prefix='/placement'),
}

_SINCE_1_30 = Setting(overrides={'placement': applications.EVERY_MICROVERSION})


def _setting(path: pathlib.Path) -> Setting:
    if path.parent.name == 'configured':
        return CONFIGURED[path.stem]
    return _SINCE_1_30 if path.parent.name == 'since-1.30' else Setting()


class Suite:
    """One YAML file: its requests in order, and the application that answers them once ``app`` is set."""

    def __init__(self, path: pathlib.Path) -> None:
        self.name = str(path.relative_to(ROOT).with_suffix(''))
        self.setting = _setting(path)
        self.app: Any = None
        self.cases: list[case.HTTPTestCase] = self._load(path)

    def _load(self, path: pathlib.Path) -> list[case.HTTPTestCase]:
        """The requests of the file as gabbi test cases; nothing is sent yet."""
        suite = yaml.load(path.read_text(encoding='utf-8'), Loader=_LOADER)
        # $HISTORY would mean the last of them. A bad merge can leave two, which pytest would run under other names.
        repeated = [name for name, count in Counter(test['name'] for test in suite['tests']).items() if count > 1]
        if repeated:
            raise ValueError(f'{path.name} has several tests of the same name: {", ".join(repeated)}')
        return list(
            suitemaker.test_suite_from_dict(
                loader=unittest.TestLoader(),
                test_base_name=path.stem,
                suite_dict=suite,
                test_directory=str(path.parent),
                host=HOST,
                port=80,
                fixture_module=None,
                intercept=lambda: self._answer,
                prefix=self.setting.prefix,
                handlers=[handler() for handler in handlers.RESPONSE_HANDLERS],
                test_loader_name=__name__,
            )
        )

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Let requests reach the application.

        gabbi 4 does so itself. Until 2026.1 is the oldest supported OpenStack release, gabbi 3 needs an interceptor.
        """
        if not hasattr(case, 'wsgi_intercept'):
            yield
            return
        from wsgi_intercept import interceptor

        with interceptor.Urllib3Interceptor(lambda: self._answer, HOST, 80, self.setting.prefix):
            yield

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Pass a request on to the application, with the path spelled as PEP 3333 wants it.

        httpx leaves the mount prefix in PATH_INFO, and the path as text instead of bytes read as latin-1.
        """
        path = environ['PATH_INFO'].removeprefix(environ['SCRIPT_NAME'])
        environ['PATH_INFO'] = path.encode('utf-8').decode('latin-1')
        return documented.checked(self.app, environ, start_response)

    def run(self, index: int) -> unittest.TestResult:
        """Send request ``index``, and first those before it that no selected test has sent; check errors in general."""
        result = unittest.TestResult()
        with self._answering():
            for earlier in self.cases[:index]:
                if not earlier.has_run:
                    earlier.run(unittest.TestResult())
            self.cases[index].run(result)
        error_details.check(getattr(self.cases[index], 'response_data', None))
        return result
