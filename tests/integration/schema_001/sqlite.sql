CREATE TABLE placement_alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT placement_alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE placement_traits (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name VARCHAR(255) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_traits0name UNIQUE (name)
);

CREATE TABLE placement_aggregates (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid VARCHAR(36) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_placement_aggregates0uuid UNIQUE (uuid)
);

CREATE TABLE placement_projects (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    external_id VARCHAR(255) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_projects0external_id UNIQUE (external_id)
);

CREATE TABLE placement_users (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    external_id VARCHAR(255) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_users0external_id UNIQUE (external_id)
);

CREATE TABLE placement_consumer_types (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name VARCHAR(255) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_consumer_types0name UNIQUE (name)
);

CREATE TABLE placement_resource_classes (
    id INTEGER NOT NULL,
    name VARCHAR(255) NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    PRIMARY KEY (id),
    CONSTRAINT uniq_resource_classes0name UNIQUE (name)
);

CREATE TABLE placement_resource_class_sequence (
    id INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (id)
);

INSERT INTO placement_resource_class_sequence (id, last) VALUES (1, 9999);

CREATE TABLE placement_resource_providers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid VARCHAR(36) NOT NULL,
    name VARCHAR(200),
    generation INTEGER NOT NULL,
    root_provider_id INTEGER,
    parent_provider_id INTEGER,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_resource_providers0uuid UNIQUE (uuid),
    CONSTRAINT uniq_resource_providers0name UNIQUE (name),
    FOREIGN KEY(root_provider_id) REFERENCES placement_resource_providers (id),
    FOREIGN KEY(parent_provider_id) REFERENCES placement_resource_providers (id)
);
CREATE INDEX resource_providers_root_provider_id_idx ON placement_resource_providers (root_provider_id);
CREATE INDEX resource_providers_parent_provider_id_idx ON placement_resource_providers (parent_provider_id);

CREATE TABLE placement_inventories (
    id INTEGER NOT NULL,
    resource_provider_id INTEGER NOT NULL,
    resource_class_id INTEGER NOT NULL,
    total INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    min_unit INTEGER NOT NULL,
    max_unit INTEGER NOT NULL,
    step_size INTEGER NOT NULL,
    allocation_ratio DOUBLE NOT NULL,
    used BIGINT DEFAULT '0' NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    PRIMARY KEY (id),
    CONSTRAINT uniq_inventories0resource_provider_resource_class UNIQUE (resource_provider_id, resource_class_id),
    FOREIGN KEY(resource_provider_id) REFERENCES placement_resource_providers (id),
    FOREIGN KEY(resource_class_id) REFERENCES placement_resource_classes (id)
);
CREATE INDEX inventories_resource_class_id_idx ON placement_inventories (resource_class_id);

CREATE TABLE placement_resource_provider_traits (
    trait_id INTEGER NOT NULL,
    resource_provider_id INTEGER NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    PRIMARY KEY (trait_id, resource_provider_id),
    FOREIGN KEY(trait_id) REFERENCES placement_traits (id),
    FOREIGN KEY(resource_provider_id) REFERENCES placement_resource_providers (id)
);
CREATE INDEX resource_provider_traits_resource_provider_trait_idx ON placement_resource_provider_traits (resource_provider_id, trait_id);

CREATE TABLE placement_resource_provider_aggregates (
    resource_provider_id INTEGER NOT NULL,
    aggregate_id INTEGER NOT NULL,
    created_at DATETIME,
    updated_at DATETIME,
    PRIMARY KEY (resource_provider_id, aggregate_id),
    FOREIGN KEY(resource_provider_id) REFERENCES placement_resource_providers (id),
    FOREIGN KEY(aggregate_id) REFERENCES placement_aggregates (id)
);
CREATE INDEX resource_provider_aggregates_aggregate_id_idx ON placement_resource_provider_aggregates (aggregate_id);

CREATE TABLE placement_consumers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    uuid VARCHAR(36) NOT NULL,
    project_id INTEGER NOT NULL,
    user_id INTEGER NOT NULL,
    generation INTEGER DEFAULT '0' NOT NULL,
    consumer_type_id INTEGER,
    created_at DATETIME,
    updated_at DATETIME,
    CONSTRAINT uniq_consumers0uuid UNIQUE (uuid),
    FOREIGN KEY(project_id) REFERENCES placement_projects (id),
    FOREIGN KEY(user_id) REFERENCES placement_users (id),
    FOREIGN KEY(consumer_type_id) REFERENCES placement_consumer_types (id)
);
CREATE INDEX consumers_project_user_type_uuid_idx ON placement_consumers (project_id, user_id, consumer_type_id, uuid);
CREATE INDEX consumers_user_id_idx ON placement_consumers (user_id);
CREATE INDEX consumers_consumer_type_id_idx ON placement_consumers (consumer_type_id);

CREATE TABLE placement_allocations (
    id INTEGER NOT NULL,
    resource_provider_id INTEGER NOT NULL,
    consumer_id VARCHAR(36) NOT NULL,
    resource_class_id INTEGER NOT NULL,
    used INTEGER NOT NULL,
    consumer_project_id INTEGER,
    consumer_user_id INTEGER,
    consumer_type_id INTEGER,
    created_at DATETIME,
    updated_at DATETIME,
    PRIMARY KEY (id),
    CONSTRAINT uniq_allocations0consumer_provider_class UNIQUE (consumer_id, resource_provider_id, resource_class_id),
    FOREIGN KEY(resource_provider_id) REFERENCES placement_resource_providers (id)
);
CREATE INDEX allocations_provider_class_used_idx ON placement_allocations (resource_provider_id, resource_class_id, used);
CREATE INDEX allocations_owner_class_used_idx ON placement_allocations (consumer_project_id, consumer_user_id, consumer_type_id, resource_class_id, used);

CREATE TABLE placement_writer_slots (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    sequence BIGINT NOT NULL,
    token BIGINT NOT NULL,
    owner BIGINT,
    updated_at DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL
);

CREATE TABLE placement_change_log (
    slot_id INTEGER NOT NULL,
    sequence BIGINT NOT NULL,
    provider_id INTEGER NOT NULL,
    kind SMALLINT NOT NULL,
    token BIGINT NOT NULL,
    PRIMARY KEY (slot_id, sequence, provider_id)
);

INSERT INTO placement_writer_slots (sequence, token) VALUES (0, 0);
INSERT INTO placement_alembic_version (version_num) VALUES ('001');
