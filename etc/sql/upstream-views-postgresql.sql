-- Views in a second schema, placement_upstream, with the names and columns that other Placement services have for
-- their tables. For programs that read these tables: doc/adopt.md. The tables are in the schema public.
CREATE SCHEMA placement_upstream;
CREATE VIEW placement_upstream.allocations AS
  SELECT id, resource_provider_id, consumer_id, resource_class_id, used, created_at, updated_at
  FROM public.placement_allocations;
CREATE VIEW placement_upstream.consumer_types AS
  SELECT id, name, created_at, updated_at
  FROM public.placement_consumer_types;
CREATE VIEW placement_upstream.consumers AS
  SELECT id, uuid, project_id, user_id, generation, consumer_type_id, created_at, updated_at
  FROM public.placement_consumers;
CREATE VIEW placement_upstream.inventories AS
  SELECT id, resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio, created_at, updated_at
  FROM public.placement_inventories;
CREATE VIEW placement_upstream.placement_aggregates AS
  SELECT id, uuid, created_at, updated_at
  FROM public.placement_aggregates;
CREATE VIEW placement_upstream.projects AS
  SELECT id, external_id, created_at, updated_at
  FROM public.placement_projects;
CREATE VIEW placement_upstream.resource_classes AS
  SELECT id, name, created_at, updated_at
  FROM public.placement_resource_classes;
CREATE VIEW placement_upstream.resource_provider_aggregates AS
  SELECT resource_provider_id, aggregate_id, created_at, updated_at
  FROM public.placement_resource_provider_aggregates;
CREATE VIEW placement_upstream.resource_provider_traits AS
  SELECT trait_id, resource_provider_id, created_at, updated_at
  FROM public.placement_resource_provider_traits;
CREATE VIEW placement_upstream.resource_providers AS
  SELECT id, uuid, name, generation, root_provider_id, parent_provider_id, created_at, updated_at
  FROM public.placement_resource_providers;
CREATE VIEW placement_upstream.traits AS
  SELECT id, name, created_at, updated_at
  FROM public.placement_traits;
CREATE VIEW placement_upstream.users AS
  SELECT id, external_id, created_at, updated_at
  FROM public.placement_users;
