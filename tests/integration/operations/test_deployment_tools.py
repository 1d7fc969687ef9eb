"""The service as devstack, kolla-ansible and openstack-helm configure and start it, in uWSGI and in Apache."""

from __future__ import annotations

import functools
import pathlib
import shutil
import uuid
from typing import Any

import httpx
import pytest

from tests.support import keystone, servers
from tests.support.operations import machine, placement_server, services
from tests.support.waiting import wait_until

#: As devstack writes it, for the most part.
OPTIONS = """
[DEFAULT]
debug = True
logging_context_format_string = %(levelname)s %(name)s [%(request_id)s %(project_name)s %(user_name)s] %(message)s
logging_exception_prefix = ERROR %(name)s %(instance)s
[placement]
max_microversion = 1.39
[placement_database]
connection = sqlite:///{home}/placement.sqlite
max_retries = -1
connection_recycle_time = 10
max_pool_size = 1
[api]
auth_strategy = keystone
use_forwarded_for = true
[oslo_concurrency]
lock_path = {home}
[oslo_middleware]
enable_proxy_headers_parsing = True
[keystone_authtoken]
service_type = placement
interface = public
cafile =
region_name = R
auth_type = password
auth_url = {auth_url}
www_authenticate_uri = {auth_url}
username = placement
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
"""

UWSGI = """
[uwsgi]
{application}
{place}
chmod-socket = 666
processes = 2
threads = 2
master = true
enable-threads = true
lazy-apps = true
thunder-lock = true
add-header = Connection: close
buffer-size = 65535
hook-master-start = unix_signal:15 gracefully_kill_them_all
exit-on-reload = false
die-on-term = true
need-app = true
"""


#: As openstack-helm writes it.
HELM_OPTIONS = """
[DEFAULT]
debug = False
use_syslog = False
log_config_append = {home}/logging.conf
[api]
auth_strategy = keystone
[placement_database]
connection = sqlite:///{home}/placement.sqlite
max_retries = -1
[keystone_authtoken]
service_token_roles = service
service_token_roles_required = True
auth_version = v3
auth_type = password
auth_url = {auth_url}
www_authenticate_uri = {auth_url}
service_type = placement
username = placement
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = R
"""

HELM_LOGGING = """
[loggers]
keys = root, placement
[handlers]
keys = stdout, null
[formatters]
keys = context, default
[logger_root]
level = WARNING
handlers = null
[logger_placement]
level = INFO
handlers = stdout
qualname = placement
[handler_null]
class = logging.NullHandler
formatter = default
args = ()
[handler_stdout]
class = StreamHandler
args = (sys.stdout,)
formatter = context
[formatter_context]
class = oslo_log.formatters.ContextFormatter
datefmt = %Y-%m-%d %H:%M:%S
[formatter_default]
format = %(message)s
datefmt = %Y-%m-%d %H:%M:%S
"""

HELM_UWSGI = """
[uwsgi]
add-header = Connection: close
buffer-size = 65535
die-on-term = true
enable-threads = true
exit-on-reload = false
hook-master-start = unix_signal:15 gracefully_kill_them_all
lazy-apps = true
log-x-forwarded-for = true
master = true
procname-prefix-spaced = placement-api:
route-user-agent = ^kube-probe.* donotlog:
thunder-lock = true
worker-reload-mercy = 80
wsgi-file = {script}
processes = 1
http-socket = 127.0.0.1:{port}
"""


def test_uwsgi_as_openstack_helm_starts_it(tmp_path: pathlib.Path) -> None:
    """Its options, with a logging configuration in a file, and a copy of the installed script."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = servers.free_port()
    environ = placement_server.environ(tmp_path, PYTHONPATH=services.import_path())
    (tmp_path / 'logging.conf').write_text(HELM_LOGGING)
    # Its start with Apache also serves a copy.
    (tmp_path / 'cgi-bin').mkdir()
    script = shutil.copy2(placement_server.BIN / 'placement-api', tmp_path / 'cgi-bin')
    ini = tmp_path / 'placement-api-uwsgi.ini'
    ini.write_text(HELM_UWSGI.format(script=script, port=port))
    with keystone.keystone() as auth_url:
        (tmp_path / 'placement.conf').write_text(HELM_OPTIONS.format(home=tmp_path, auth_url=auth_url))
        services.run([str(placement_server.BIN / 'placement-manage'), 'db', 'sync'], environ)
        url = f'http://127.0.0.1:{port}'
        log = tmp_path / 'uwsgi.log'
        with services.running([str(programs / 'uwsgi'), '--ini', str(ini)], url, log, environ):
            assert httpx.get(f'{url}/resource_providers').status_code == 401
            listed = httpx.get(f'{url}/resource_providers', headers={'X-Auth-Token': 'good-admin'}, timeout=30)
            assert listed.json() == {'resource_providers': []}
    said = log.read_text()
    assert f'configuration: {tmp_path}/placement.conf, ready' in said
    # Only in the default configuration of the log are libraries shown.
    assert 'keystonemiddleware' not in said
    assert 'does not have the option [placement_database] max_retries in ' in said


# On a machine ----------------------------------------------------------------------------------------------

#: As kolla-ansible writes it. Its images have the programs in /var/lib/kolla/venv.
KOLLA_OPTIONS = """
[DEFAULT]
debug = False
log_dir = /var/log/kolla/placement
state_path = /var/lib/placement
osapi_compute_listen = 127.0.0.1

[api]
auth_strategy = keystone

[cache]
backend = oslo_cache.memcache_pool
enabled = True
memcache_servers = 127.0.0.1:11211

[keystone_authtoken]
service_type = placement
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
cafile =
project_domain_id = default
user_domain_id = default
project_name = service
username = placement
password = secret
region_name = R
memcache_security_strategy = ENCRYPT
memcache_secret_key = secret
memcached_servers = 127.0.0.1:11211

[oslo_concurrency]
lock_path = /var/lib/placement/tmp

[oslo_middleware]
enable_proxy_headers_parsing = True

[oslo_policy]
enforce_new_defaults = True
enforce_scope = True

[placement_database]
connection = mysql+pymysql://placement:secret@127.0.0.1:3306/placement
connection_recycle_time = 10
max_pool_size = 1
max_retries = -1

[placement]
max_microversion = 1.39
"""

KOLLA_SITE = """
Listen 127.0.0.1:8780
ServerSignature Off
ServerTokens Prod
TraceEnable off
TimeOut 60
KeepAliveTimeout 60
LogLevel info
<VirtualHost *:8780>
    WSGIDaemonProcess placement-api processes=2 threads=1 user=placement group=placement display-name=%{GROUP} \
python-home=/var/lib/kolla/venv
    WSGIProcessGroup placement-api
    WSGIScriptAlias / /var/lib/kolla/venv/bin/placement-api
    WSGIApplicationGroup %{GLOBAL}
    WSGIPassAuthorization On
    ErrorLogFormat "%M"
    ErrorLog "/var/log/kolla/placement/placement-api-error.log"
    LogFormat "%{X-Forwarded-For}i %l %u %t \\"%r\\" %>s %b %D \\"%{Referer}i\\" \\"%{User-Agent}i\\"" logformat
    CustomLog "/var/log/kolla/placement/placement-api-access.log" logformat
    <Directory /var/lib/kolla/venv/bin>
        <Files placement-api>
            Require all granted
        </Files>
    </Directory>
</VirtualHost>
"""

#: devstack puts Apache in front of a socket.
DEVSTACK_SITE = """
Listen 127.0.0.1:80
ProxyPass "/placement" "unix:/var/run/uwsgi/placement-api.socket|uwsgi://uwsgi-uds-placement-api" retry=0 acquire=1
"""

TOKEN = {'X-Auth-Token': 'good-admin', 'OpenStack-API-Version': 'placement 1.20'}

on_the_machine = pytest.mark.xdist_group('machine')


@pytest.fixture(scope='module')
def equipped(host: machine.Machine) -> machine.Machine:
    """The machine with the programs in /var/lib/kolla/venv, Apache, memcached and MariaDB. Nothing else listens."""
    venv = '/var/lib/kolla/venv'
    for unit in ('nginx', 'apache2', 'placement-api.socket', 'placement-uwsgi', 'script'):
        host.try_run(f'systemctl stop {unit}')
    host.run('id placement || useradd --system --shell /usr/sbin/nologin placement')
    host.run('usermod --home /var/lib/placement placement')
    host.run(f'mkdir -p {venv} /etc/placement /var/lib/placement /var/log/kolla/placement /var/run/uwsgi')
    host.run(f'python3 -m venv {venv} && {venv}/bin/pip install ".[mysql,memcached]" pyuwsgi', network=True)
    host.run('chown -R placement: /var/lib/placement /var/log/kolla/placement /var/run/uwsgi')
    host.run('rm -f /etc/apache2/sites-enabled/* /etc/apache2/ports.conf && touch /etc/apache2/ports.conf')
    host.run('a2enmod wsgi proxy proxy_uwsgi && systemctl start memcached')
    # The data of this machine's own server are in use.
    host.run('mariadb-install-db --user=mysql --datadir=/var/lib/kolla/mysql --skip-test-db')
    server = 'mariadbd --no-defaults --user=mysql --datadir=/var/lib/kolla/mysql --socket=/run/db.sock --bind=127.0.0.1'
    host.run(f'systemd-run --unit=db /usr/sbin/{server}')
    wait_until(lambda: host.try_run('mariadb -S /run/db.sock -e "SELECT 1"').returncode == 0, 'no MariaDB')
    grant = "GRANT ALL ON placement.* TO placement@'127.0.0.1' IDENTIFIED BY 'secret'"
    host.run(f'mariadb -S /run/db.sock -e "CREATE DATABASE placement; {grant}"')
    return host


def _check(host: machine.Machine, url: str, newest: str) -> None:
    """The service responds, requires a token, and knows its address."""

    def request(method: str, path: str, **options: Any) -> httpx.Response:
        return host.inside(functools.partial(httpx.request, method, f'{url}{path}', timeout=30, **options))

    def is_responding() -> bool:
        ran = host.try_run(f'curl -sf {url}/')
        return ran.returncode == 0

    wait_until(is_responding, f'nothing responds at {url}')
    (version,) = request('GET', '/').json()['versions']
    assert version['max_version'] == newest
    refused = request('GET', '/resource_providers')
    assert refused.status_code == 401, refused.text
    body = {'name': str(uuid.uuid4())}
    created = request('POST', '/resource_providers', headers=TOKEN, json=body)
    assert created.status_code == 200, created.text
    path = url.partition('127.0.0.1')[2].lstrip(':0123456789')
    assert created.headers['location'] == f'{url}/resource_providers/{created.json()["uuid"]}'
    assert created.json()['links'][0]['href'].startswith(f'{path}/resource_providers/')
    named = request('GET', f'/resource_providers?name={body["name"]}', headers=TOKEN)
    assert len(named.json()['resource_providers']) == 1


@on_the_machine
def test_kolla_ansible(equipped: machine.Machine, identity_url: str) -> None:
    """Its options and its virtual host, with MariaDB and memcached."""
    equipped.path('/etc/placement/placement.conf').write_text(KOLLA_OPTIONS.format(keystone=identity_url))
    run = 'runuser -u placement -- /var/lib/kolla/venv/bin'
    # What the containers run before the service starts.
    for command in ('placement-manage db sync', 'placement-manage db online_data_migrations'):
        equipped.run(f'{run}/{command}')
    check = equipped.run(f'{run}/placement-status upgrade check')
    assert 'Failure' not in check
    equipped.path('/etc/apache2/conf-enabled/placement.conf').write_text(KOLLA_SITE)
    equipped.run('systemctl restart apache2')
    _check(equipped, 'http://127.0.0.1:8780', '1.39')
    processes = equipped.run('ps -o user:12=,args= -e | grep "[w]sgi:placement"').splitlines()
    assert [line.split()[0] for line in processes] == ['placement'] * 2
    logs = equipped.path('/var/log/kolla/placement')
    log = (logs / 'placement-api.log').read_text()
    for option in ('[DEFAULT] osapi_compute_listen', '[cache] backend', '[placement_database] max_retries'):
        assert f'does not have the option {option} in ' in log, log
    assert 'ERROR' not in log
    # Of Apache and mod_wsgi, and no warning of a library.
    for line in (logs / 'placement-api-error.log').read_text().splitlines():
        assert line.startswith('mod_wsgi (pid='), line


@on_the_machine
def test_devstack_behind_apache(equipped: machine.Machine, identity_url: str) -> None:
    """uWSGI on a socket, as in the test above, and Apache in front of it, below a path."""
    equipped.run('systemctl stop apache2')
    options = OPTIONS.format(home='/var/lib/placement', auth_url=identity_url)
    equipped.path('/etc/placement/placement.conf').write_text(options)
    place = 'socket = /var/run/uwsgi/placement-api.socket'
    ini = UWSGI.format(application='module = placement.wsgi.api:application', place=place)
    equipped.path('/etc/placement/placement-uwsgi.ini').write_text(ini)
    programs = '/var/lib/kolla/venv/bin'
    equipped.run(f'runuser -u placement -- {programs}/placement-manage db sync')
    start = f'{programs}/uwsgi --procname-prefix placement --ini /etc/placement/placement-uwsgi.ini'
    equipped.run(f'systemd-run --unit=devstack@placement-api --uid=placement {start}')
    equipped.path('/etc/apache2/conf-enabled/placement.conf').write_text(DEVSTACK_SITE)
    equipped.run('systemctl start apache2')
    _check(equipped, 'http://127.0.0.1/placement', '1.39')
