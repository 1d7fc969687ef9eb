"""[placement]: defaults for consumers, limits of requests and searches, and the policy file."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup('placement', title='Answers, limits and policy')

_INCOMPLETE = '00000000-0000-0000-0000-000000000000'

#: The values of ``max_microversion``, the default first.
MAX_MICROVERSIONS = [f'1.{minor}' for minor in range(29, 40)]

OPTS = [
    cfg.StrOpt(
        'max_microversion',
        default=MAX_MICROVERSIONS[0],
        choices=MAX_MICROVERSIONS,
        help='The newest microversion that is served. A request for a newer one is answered with 406. Compute services'
        ' from release Train on need 1.36 or later. Processes behind one endpoint must have the same value.',
    ),
    cfg.BoolOpt(
        'randomize_allocation_candidates',
        default=False,
        help='Whether allocation candidates are returned in random order. Then a limit takes a uniform sample of the'
        ' candidates, which spreads load over hosts. Otherwise the order is the same each time, which fills one host'
        ' after the other.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_project_id',
        default=_INCOMPLETE,
        max_length=255,
        help='Project of consumers whose allocations were written below microversion 1.8, which does not name one.',
    ),
    cfg.StrOpt(
        'incomplete_consumer_user_id',
        default=_INCOMPLETE,
        max_length=255,
        help='User of consumers whose allocations were written below microversion 1.8, which does not name one.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates',
        default=100000,
        min=1,
        help='Most candidates that one GET /allocation_candidates finds, also when the request sets no limit or a'
        ' higher one. Reaching it is logged.',
    ),
    cfg.IntOpt(
        'max_allocation_candidates_size',
        default=400000,
        min=1000,
        help='Largest response to one GET /allocation_candidates, in entries: one for each resource class of each'
        ' provider of each candidate, one for each provider in its mappings, and one for each provider summary.'
        ' Reaching it is logged.',
    ),
    cfg.IntOpt(
        'max_search_steps',
        default=3000000,
        min=1000,
        help='Most steps of the search in one GET /allocation_candidates. Checking one class of one provider for one'
        ' part of the request is a step, which takes about half a microsecond. When the limit is reached, the'
        ' candidates found so far are returned, and that is logged. Steps are counted, and not time, so that equal'
        ' requests get equal responses.',
    ),
    cfg.IntOpt(
        'max_search_steps_per_tree',
        default=200000,
        min=100,
        help='Most steps of the search in one provider tree without finding a candidate, or another one. When the limit'
        ' is reached, the search goes on with the other trees, and that is logged.',
    ),
    cfg.StrOpt(
        'policy_file',
        default='placement-policy.yaml',
        help='YAML file that overrides policy rules. A relative path is looked for beside the configuration file. The'
        ' file is read again when it changes. It need not exist unless this option is set. When [oslo_policy]'
        ' policy_file is set too, that one is used.',
    ),
]
