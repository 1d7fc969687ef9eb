"""The views of trees: a list of provider trees, and one tree as a picture with its inventories and consumers."""

from __future__ import annotations

from collections.abc import Mapping

from placement import exception, uuid_spelling
from placement.cache.providers import DISABLED_TRAIT
from placement.ops.page.view import Pagination, Parameters, Sources, View
from placement.ops.reports import capacity_report, consumer_reports, provider_trees
from placement.ops.reports.provider_trees import ProviderTree

#: The number of entries on one page of each list.
_TREES, _PROVIDERS, _CONSUMERS = 50, 50, 25
#: The number of providers in the picture of a tree.
_PICTURED = 40
#: The characters that may separate a provider's name from the rest of a descendant's name.
_SEPARATORS = ' _-.:/'
#: The number of ancestors whose names are compared with a provider's name, so that deep trees do not take longer.
_MAX_PREFIXES = 4


def trees_view(sources: Sources, parameters: Parameters) -> View:
    """List the trees that match the parameters, the fullest first unless ``order`` is ``name`` or a resource class."""
    page, trees = parameters.page(), parameters.trees()
    snapshot = sources.provider_cache.up_to_date()
    order = parameters.text('order') or capacity_report.FULLEST
    if order not in (capacity_report.FULLEST, capacity_report.NAME, *snapshot.names.class_ids):
        raise exception.BadQuery(f'“order” must be fullest, name or a resource class, not “{order}”.')
    total, rows = capacity_report.list_trees(snapshot, trees, order, (page - 1) * _TREES, _TREES)
    pages = Pagination(page, _TREES, total)
    data = {'search': trees.name, 'scope': trees, 'order': order, 'trees': rows, **pages.data()}
    all_classes = capacity_report.class_names(snapshot)
    shown = {name for row in rows for name in row.utilizations}
    extra = {
        'pages': pages,
        'stored': snapshot.provider_count,
        'classes': [name for name in all_classes if name in shown],
        'all_classes': all_classes,
    }
    return View('trees.html', 'Trees', data, extra)


def tree_view(sources: Sources, parameters: Parameters, uuid: str) -> View:
    """Show the tree that a provider belongs to."""
    if not uuid_spelling.is_uuid(uuid):
        raise exception.BadQuery(f'“{uuid}” is not the uuid of a provider.')
    uuid = uuid_spelling.canonical_uuid(uuid)
    tree = provider_trees.tree_of(sources.db, sources.provider_cache.up_to_date(), uuid)
    root, providers = tree.root, [tree.provider_data(provider) for provider in tree.walk()]
    for provider in providers:
        provider['inventories'] = [
            {'resource_class': name, **inventory} for name, inventory in provider['inventories'].items()
        ]
    provider_pages = Pagination(parameters.page(), _PROVIDERS, len(providers))
    number = parameters.page('consumer_page')
    total, rows = consumer_reports.consumers_of_tree(sources.db, root.id, (number - 1) * _CONSUMERS, _CONSUMERS)
    consumer_pages = Pagination(number, _CONSUMERS, total, 'consumer_page')
    depths: dict[str | None, int] = {}
    for member in tree.walk():
        depths[member.uuid] = 0 if member is root else depths[member.parent_provider_uuid] + 1
    data = {
        'root': {'uuid': root.uuid, 'name': root.name or ''},
        'providers': providers[provider_pages.first : provider_pages.last],
        'sharing_providers': tree.sharing_data(),
        'consumers': rows,
        **provider_pages.data(),
        'consumer_pages': consumer_pages.data(),
    }
    extra = {
        'provider_pages': provider_pages,
        'pages_of_consumers': consumer_pages,
        'short': short_names(tree),
        'depths': depths,
        'found': None if uuid == root.uuid else uuid,
        'problems': [
            (provider['uuid'], inventory, tree.explain_over_commitment(member, inventory['resource_class']))
            for member, provider in zip(tree.walk(), providers, strict=True)
            for inventory in provider['inventories']
            if inventory['used'] > inventory['capacity'] or inventory['used'] != inventory['allocated']
        ],
        'disabled': DISABLED_TRAIT in root.traits,
        # A provider is preceded by its ancestors.
        'pictured': providers[:_PICTURED],
    }
    return View('tree.html', root.display_name, data, extra)


def short_names(tree: ProviderTree) -> Mapping[str, str]:
    """Return the short name of each provider of a tree, by uuid: ``NUMA0`` for ``host_NUMA0`` below ``host``.

    The short name leaves out the name of the nearest ancestor whose name the provider's name begins with. The root
    keeps its whole name. A provider without a name has its uuid.
    """
    names: dict[str, str] = {}
    names_from: dict[int | None, tuple[str, ...]] = {}
    for provider in tree.walk():
        name = provider.name or ''
        prefixes = () if provider is tree.root else names_from[provider.parent_id]
        names_from[provider.id] = (name, *prefixes)[:_MAX_PREFIXES]
        rests = (name.removeprefix(prefix) for prefix in prefixes if prefix and name.startswith(prefix))
        short = (rest.lstrip(_SEPARATORS) for rest in rests if rest.lstrip(_SEPARATORS) not in ('', rest))
        names[provider.uuid] = next(short, name) or provider.uuid
    return names
