//! What each request looks like: one table per message that is decoded by the message crate.
//!
//! The order of the fields is that of the wire, and the versions are those of Kafka 4.1's message
//! definitions, and for share groups of Kafka 4.3's. See [`super::shape`] for what they are for, and for the test that holds them
//! against the decoder.

use kafka_protocol::messages::ApiKey;

use super::shape::Kind::{Blob, Fixed, List, Maybe, Row, Rows, Text};
use super::shape::{Fields, NEVER, Shape, field, plain, since, until};

/// `None` for what is not handled here, and for Produce, which has its own decoder.
pub(super) fn of(api: ApiKey) -> Option<&'static Shape> {
    let shape: &'static Shape = match api {
        ApiKey::Fetch => &FETCH,
        ApiKey::ListOffsets => &LIST_OFFSETS,
        ApiKey::Metadata => &METADATA,
        ApiKey::OffsetCommit => &OFFSET_COMMIT,
        ApiKey::OffsetFetch => &OFFSET_FETCH,
        ApiKey::FindCoordinator => &FIND_COORDINATOR,
        ApiKey::JoinGroup => &JOIN_GROUP,
        ApiKey::Heartbeat => &HEARTBEAT,
        ApiKey::LeaveGroup => &LEAVE_GROUP,
        ApiKey::SyncGroup => &SYNC_GROUP,
        ApiKey::DescribeGroups => &DESCRIBE_GROUPS,
        ApiKey::ListGroups => &LIST_GROUPS,
        ApiKey::ApiVersions => &API_VERSIONS,
        ApiKey::CreateTopics => &CREATE_TOPICS,
        ApiKey::DeleteTopics => &DELETE_TOPICS,
        ApiKey::DeleteRecords => &DELETE_RECORDS,
        ApiKey::InitProducerId => &INIT_PRODUCER_ID,
        ApiKey::OffsetForLeaderEpoch => &OFFSET_FOR_LEADER_EPOCH,
        ApiKey::DescribeAcls => &DESCRIBE_ACLS,
        ApiKey::CreateAcls => &CREATE_ACLS,
        ApiKey::DeleteAcls => &DELETE_ACLS,
        ApiKey::DescribeConfigs => &DESCRIBE_CONFIGS,
        ApiKey::AlterConfigs => &ALTER_CONFIGS,
        ApiKey::DescribeLogDirs => &DESCRIBE_LOG_DIRS,
        ApiKey::CreatePartitions => &CREATE_PARTITIONS,
        ApiKey::DeleteGroups => &DELETE_GROUPS,
        ApiKey::ElectLeaders => &ELECT_LEADERS,
        ApiKey::IncrementalAlterConfigs => &INCREMENTAL_ALTER_CONFIGS,
        ApiKey::AlterPartitionReassignments => &ALTER_PARTITION_REASSIGNMENTS,
        ApiKey::ListPartitionReassignments => &LIST_PARTITION_REASSIGNMENTS,
        ApiKey::OffsetDelete => &OFFSET_DELETE,
        ApiKey::DescribeClientQuotas => &DESCRIBE_CLIENT_QUOTAS,
        ApiKey::AlterClientQuotas => &ALTER_CLIENT_QUOTAS,
        ApiKey::DescribeUserScramCredentials => &DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey::DescribeQuorum => &DESCRIBE_QUORUM,
        ApiKey::UpdateFeatures => &UPDATE_FEATURES,
        ApiKey::DescribeTransactions => &DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => &LIST_TRANSACTIONS,
        ApiKey::DescribeCluster => &DESCRIBE_CLUSTER,
        ApiKey::DescribeProducers => &DESCRIBE_PRODUCERS,
        ApiKey::ConsumerGroupHeartbeat => &CONSUMER_GROUP_HEARTBEAT,
        ApiKey::ConsumerGroupDescribe => &CONSUMER_GROUP_DESCRIBE,
        ApiKey::DescribeTopicPartitions => &DESCRIBE_TOPIC_PARTITIONS,
        ApiKey::ListConfigResources => &LIST_CONFIG_RESOURCES,
        ApiKey::ShareGroupHeartbeat => &SHARE_GROUP_HEARTBEAT,
        ApiKey::ShareGroupDescribe => &SHARE_GROUP_DESCRIBE,
        ApiKey::ShareFetch => &SHARE_FETCH,
        ApiKey::ShareAcknowledge => &SHARE_ACKNOWLEDGE,
        ApiKey::InitializeShareGroupState => &INITIALIZE_SHARE_GROUP_STATE,
        ApiKey::ReadShareGroupState => &READ_SHARE_GROUP_STATE,
        ApiKey::WriteShareGroupState => &WRITE_SHARE_GROUP_STATE,
        ApiKey::DeleteShareGroupState => &DELETE_SHARE_GROUP_STATE,
        ApiKey::ReadShareGroupStateSummary => &READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey::DescribeShareGroupOffsets => &DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey::AlterShareGroupOffsets => &ALTER_SHARE_GROUP_OFFSETS,
        ApiKey::DeleteShareGroupOffsets => &DELETE_SHARE_GROUP_OFFSETS,
        _ => return None,
    };
    Some(shape)
}

static FETCH: Shape = Shape {
    flexible_since: 12,
    fields: Fields {
        plain: &[
            until(0, 14, "replica_id", Fixed(4)),
            field("max_wait_ms", Fixed(4)),
            field("min_bytes", Fixed(4)),
            field("max_bytes", Fixed(4)),
            field("isolation_level", Fixed(1)),
            since(7, "session_id", Fixed(4)),
            since(7, "session_epoch", Fixed(4)),
            field(
                "topics",
                Rows(&plain(&[
                    until(0, 12, "topic", Text),
                    since(13, "topic_id", Fixed(16)),
                    field(
                        "partitions",
                        Rows(&Fields {
                            plain: &[
                                field("partition", Fixed(4)),
                                since(9, "current_leader_epoch", Fixed(4)),
                                field("fetch_offset", Fixed(8)),
                                since(12, "last_fetched_epoch", Fixed(4)),
                                since(5, "log_start_offset", Fixed(8)),
                                field("partition_max_bytes", Fixed(4)),
                            ],
                            tagged: &[
                                (0, since(17, "replica_directory_id", Fixed(16))),
                                (1, since(18, "high_watermark", Fixed(8))),
                            ],
                        }),
                    ),
                ])),
            ),
            since(
                7,
                "forgotten_topics_data",
                Rows(&plain(&[
                    until(7, 12, "topic", Text),
                    since(13, "topic_id", Fixed(16)),
                    since(7, "partitions", List(&Fixed(4))),
                ])),
            ),
            since(11, "rack_id", Text),
        ],
        tagged: &[
            (0, since(12, "cluster_id", Text)),
            (
                1,
                since(
                    15,
                    "replica_state",
                    Row(&plain(&[
                        since(15, "replica_id", Fixed(4)),
                        since(15, "replica_epoch", Fixed(8)),
                    ])),
                ),
            ),
        ],
    },
};

static LIST_OFFSETS: Shape = Shape {
    flexible_since: 6,
    fields: plain(&[
        field("replica_id", Fixed(4)),
        since(2, "isolation_level", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        since(4, "current_leader_epoch", Fixed(4)),
                        field("timestamp", Fixed(8)),
                    ])),
                ),
            ])),
        ),
        since(10, "timeout_ms", Fixed(4)),
    ]),
};

static METADATA: Shape = Shape {
    flexible_since: 9,
    fields: plain(&[
        field("topics", Rows(&plain(&[since(10, "topic_id", Fixed(16)), field("name", Text)]))),
        since(4, "allow_auto_topic_creation", Fixed(1)),
        until(8, 10, "include_cluster_authorized_operations", Fixed(1)),
        since(8, "include_topic_authorized_operations", Fixed(1)),
    ]),
};

static OFFSET_COMMIT: Shape = Shape {
    flexible_since: 8,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id_or_member_epoch", Fixed(4)),
        field("member_id", Text),
        since(7, "group_instance_id", Text),
        until(0, 4, "retention_time_ms", Fixed(8)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("committed_offset", Fixed(8)),
                        since(6, "committed_leader_epoch", Fixed(4)),
                        field("committed_metadata", Text),
                    ])),
                ),
            ])),
        ),
    ]),
};

static OFFSET_FETCH: Shape = Shape {
    flexible_since: 6,
    fields: plain(&[
        until(0, 7, "group_id", Text),
        until(
            0,
            7,
            "topics",
            Rows(&plain(&[
                until(0, 7, "name", Text),
                until(0, 7, "partition_indexes", List(&Fixed(4))),
            ])),
        ),
        since(
            8,
            "groups",
            Rows(&plain(&[
                since(8, "group_id", Text),
                since(9, "member_id", Text),
                since(9, "member_epoch", Fixed(4)),
                since(
                    8,
                    "topics",
                    Rows(&plain(&[
                        since(8, "name", Text),
                        since(8, "partition_indexes", List(&Fixed(4))),
                    ])),
                ),
            ])),
        ),
        since(7, "require_stable", Fixed(1)),
    ]),
};

static FIND_COORDINATOR: Shape = Shape {
    flexible_since: 3,
    fields: plain(&[
        until(0, 3, "key", Text),
        since(1, "key_type", Fixed(1)),
        since(4, "coordinator_keys", List(&Text)),
    ]),
};

static JOIN_GROUP: Shape = Shape {
    flexible_since: 6,
    fields: plain(&[
        field("group_id", Text),
        field("session_timeout_ms", Fixed(4)),
        since(1, "rebalance_timeout_ms", Fixed(4)),
        field("member_id", Text),
        since(5, "group_instance_id", Text),
        field("protocol_type", Text),
        field("protocols", Rows(&plain(&[field("name", Text), field("metadata", Blob)]))),
        since(8, "reason", Text),
    ]),
};

static HEARTBEAT: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id", Fixed(4)),
        field("member_id", Text),
        since(3, "group_instance_id", Text),
    ]),
};

static LEAVE_GROUP: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        until(0, 2, "member_id", Text),
        since(
            3,
            "members",
            Rows(&plain(&[
                since(3, "member_id", Text),
                since(3, "group_instance_id", Text),
                since(5, "reason", Text),
            ])),
        ),
    ]),
};

static SYNC_GROUP: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        field("group_id", Text),
        field("generation_id", Fixed(4)),
        field("member_id", Text),
        since(3, "group_instance_id", Text),
        since(5, "protocol_type", Text),
        since(5, "protocol_name", Text),
        field("assignments", Rows(&plain(&[field("member_id", Text), field("assignment", Blob)]))),
    ]),
};

static DESCRIBE_GROUPS: Shape = Shape {
    flexible_since: 5,
    fields: plain(&[
        field("groups", List(&Text)),
        since(3, "include_authorized_operations", Fixed(1)),
    ]),
};

static LIST_GROUPS: Shape = Shape {
    flexible_since: 3,
    fields: plain(&[since(4, "states_filter", List(&Text)), since(5, "types_filter", List(&Text))]),
};

static API_VERSIONS: Shape = Shape {
    flexible_since: 3,
    fields: plain(&[
        since(3, "client_software_name", Text),
        since(3, "client_software_version", Text),
    ]),
};

static CREATE_TOPICS: Shape = Shape {
    flexible_since: 5,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("num_partitions", Fixed(4)),
                field("replication_factor", Fixed(2)),
                field(
                    "assignments",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("broker_ids", List(&Fixed(4))),
                    ])),
                ),
                field("configs", Rows(&plain(&[field("name", Text), field("value", Text)]))),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
        field("validate_only", Fixed(1)),
    ]),
};

static DELETE_TOPICS: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        since(
            6,
            "topics",
            Rows(&plain(&[since(6, "name", Text), since(6, "topic_id", Fixed(16))])),
        ),
        until(0, 5, "topic_names", List(&Text)),
        field("timeout_ms", Fixed(4)),
    ]),
};

static DELETE_RECORDS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition_index", Fixed(4)), field("offset", Fixed(8))])),
                ),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
    ]),
};

static INIT_PRODUCER_ID: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        field("transactional_id", Text),
        field("transaction_timeout_ms", Fixed(4)),
        since(3, "producer_id", Fixed(8)),
        since(3, "producer_epoch", Fixed(2)),
    ]),
};

static OFFSET_FOR_LEADER_EPOCH: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        since(3, "replica_id", Fixed(4)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("current_leader_epoch", Fixed(4)),
                        field("leader_epoch", Fixed(4)),
                    ])),
                ),
            ])),
        ),
    ]),
};

static DESCRIBE_ACLS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        field("resource_type_filter", Fixed(1)),
        field("resource_name_filter", Text),
        field("pattern_type_filter", Fixed(1)),
        field("principal_filter", Text),
        field("host_filter", Text),
        field("operation", Fixed(1)),
        field("permission_type", Fixed(1)),
    ]),
};

static CREATE_ACLS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[field(
        "creations",
        Rows(&plain(&[
            field("resource_type", Fixed(1)),
            field("resource_name", Text),
            field("resource_pattern_type", Fixed(1)),
            field("principal", Text),
            field("host", Text),
            field("operation", Fixed(1)),
            field("permission_type", Fixed(1)),
        ])),
    )]),
};

static DELETE_ACLS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[field(
        "filters",
        Rows(&plain(&[
            field("resource_type_filter", Fixed(1)),
            field("resource_name_filter", Text),
            field("pattern_type_filter", Fixed(1)),
            field("principal_filter", Text),
            field("host_filter", Text),
            field("operation", Fixed(1)),
            field("permission_type", Fixed(1)),
        ])),
    )]),
};

static DESCRIBE_CONFIGS: Shape = Shape {
    flexible_since: 4,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field("configuration_keys", List(&Text)),
            ])),
        ),
        field("include_synonyms", Fixed(1)),
        since(3, "include_documentation", Fixed(1)),
    ]),
};

static ALTER_CONFIGS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field("configs", Rows(&plain(&[field("name", Text), field("value", Text)]))),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};

static DESCRIBE_LOG_DIRS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[field("topic", Text), field("partitions", List(&Fixed(4)))])),
    )]),
};

static CREATE_PARTITIONS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("count", Fixed(4)),
                field("assignments", Rows(&plain(&[field("broker_ids", List(&Fixed(4)))]))),
            ])),
        ),
        field("timeout_ms", Fixed(4)),
        field("validate_only", Fixed(1)),
    ]),
};

static DELETE_GROUPS: Shape =
    Shape { flexible_since: 2, fields: plain(&[field("groups_names", List(&Text))]) };

static ELECT_LEADERS: Shape = Shape {
    flexible_since: 2,
    fields: plain(&[
        since(1, "election_type", Fixed(1)),
        field(
            "topic_partitions",
            Rows(&plain(&[field("topic", Text), field("partitions", List(&Fixed(4)))])),
        ),
        field("timeout_ms", Fixed(4)),
    ]),
};

static INCREMENTAL_ALTER_CONFIGS: Shape = Shape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "resources",
            Rows(&plain(&[
                field("resource_type", Fixed(1)),
                field("resource_name", Text),
                field(
                    "configs",
                    Rows(&plain(&[
                        field("name", Text),
                        field("config_operation", Fixed(1)),
                        field("value", Text),
                    ])),
                ),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};

static ALTER_PARTITION_REASSIGNMENTS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        since(1, "allow_replication_factor_change", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("replicas", List(&Fixed(4))),
                    ])),
                ),
            ])),
        ),
    ]),
};

static LIST_PARTITION_REASSIGNMENTS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        field(
            "topics",
            Rows(&plain(&[field("name", Text), field("partition_indexes", List(&Fixed(4)))])),
        ),
    ]),
};

static OFFSET_DELETE: Shape = Shape {
    flexible_since: NEVER,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("name", Text),
                field("partitions", Rows(&plain(&[field("partition_index", Fixed(4))]))),
            ])),
        ),
    ]),
};

static DESCRIBE_CLIENT_QUOTAS: Shape = Shape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "components",
            Rows(&plain(&[
                field("entity_type", Text),
                field("match_type", Fixed(1)),
                field("_match", Text),
            ])),
        ),
        field("strict", Fixed(1)),
    ]),
};

static ALTER_CLIENT_QUOTAS: Shape = Shape {
    flexible_since: 1,
    fields: plain(&[
        field(
            "entries",
            Rows(&plain(&[
                field(
                    "entity",
                    Rows(&plain(&[field("entity_type", Text), field("entity_name", Text)])),
                ),
                field(
                    "ops",
                    Rows(&plain(&[
                        field("key", Text),
                        field("value", Fixed(8)),
                        field("remove", Fixed(1)),
                    ])),
                ),
            ])),
        ),
        field("validate_only", Fixed(1)),
    ]),
};

static DESCRIBE_USER_SCRAM_CREDENTIALS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[field("users", Rows(&plain(&[field("name", Text)])))]),
};

static DESCRIBE_QUORUM: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[
            field("topic_name", Text),
            field("partitions", Rows(&plain(&[field("partition_index", Fixed(4))]))),
        ])),
    )]),
};

static UPDATE_FEATURES: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("timeout_ms", Fixed(4)),
        field(
            "feature_updates",
            Rows(&plain(&[
                field("feature", Text),
                field("max_version_level", Fixed(2)),
                until(0, 0, "allow_downgrade", Fixed(1)),
                since(1, "upgrade_type", Fixed(1)),
            ])),
        ),
        since(1, "validate_only", Fixed(1)),
    ]),
};

static DESCRIBE_TRANSACTIONS: Shape =
    Shape { flexible_since: 0, fields: plain(&[field("transactional_ids", List(&Text))]) };

static LIST_TRANSACTIONS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("state_filters", List(&Text)),
        field("producer_id_filters", List(&Fixed(8))),
        since(1, "duration_filter", Fixed(8)),
        since(2, "transactional_id_pattern", Text),
    ]),
};

static DESCRIBE_CLUSTER: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("include_cluster_authorized_operations", Fixed(1)),
        since(1, "endpoint_type", Fixed(1)),
        since(2, "include_fenced_brokers", Fixed(1)),
    ]),
};

static DESCRIBE_PRODUCERS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[field(
        "topics",
        Rows(&plain(&[field("name", Text), field("partition_indexes", List(&Fixed(4)))])),
    )]),
};

static CONSUMER_GROUP_HEARTBEAT: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("member_epoch", Fixed(4)),
        field("instance_id", Text),
        field("rack_id", Text),
        field("rebalance_timeout_ms", Fixed(4)),
        field("subscribed_topic_names", List(&Text)),
        since(1, "subscribed_topic_regex", Text),
        field("server_assignor", Text),
        field(
            "topic_partitions",
            Rows(&plain(&[field("topic_id", Fixed(16)), field("partitions", List(&Fixed(4)))])),
        ),
    ]),
};

static CONSUMER_GROUP_DESCRIBE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_ids", List(&Text)),
        field("include_authorized_operations", Fixed(1)),
    ]),
};

static DESCRIBE_TOPIC_PARTITIONS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("topics", Rows(&plain(&[field("name", Text)]))),
        field("response_partition_limit", Fixed(4)),
        field(
            "cursor",
            Maybe(&plain(&[field("topic_name", Text), field("partition_index", Fixed(4))])),
        ),
    ]),
};

static LIST_CONFIG_RESOURCES: Shape =
    Shape { flexible_since: 0, fields: plain(&[since(1, "resource_types", List(&Fixed(1)))]) };

static SHARE_GROUP_HEARTBEAT: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("member_epoch", Fixed(4)),
        field("rack_id", Text),
        field("subscribed_topic_names", List(&Text)),
    ]),
};

static SHARE_GROUP_DESCRIBE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_ids", List(&Text)),
        field("include_authorized_operations", Fixed(1)),
    ]),
};

static ACKNOWLEDGEMENT_BATCHES: Fields = plain(&[
    field("first_offset", Fixed(8)),
    field("last_offset", Fixed(8)),
    field("acknowledge_types", List(&Fixed(1))),
]);

static SHARE_FETCH: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("share_session_epoch", Fixed(4)),
        field("max_wait_ms", Fixed(4)),
        field("min_bytes", Fixed(4)),
        field("max_bytes", Fixed(4)),
        field("max_records", Fixed(4)),
        field("batch_size", Fixed(4)),
        since(2, "share_acquire_mode", Fixed(1)),
        since(2, "is_renew_ack", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("acknowledgement_batches", Rows(&ACKNOWLEDGEMENT_BATCHES)),
                    ])),
                ),
            ])),
        ),
        field(
            "forgotten_topics_data",
            Rows(&plain(&[field("topic_id", Fixed(16)), field("partitions", List(&Fixed(4)))])),
        ),
    ]),
};

static SHARE_ACKNOWLEDGE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("member_id", Text),
        field("share_session_epoch", Fixed(4)),
        since(2, "is_renew_ack", Fixed(1)),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("acknowledgement_batches", Rows(&ACKNOWLEDGEMENT_BATCHES)),
                    ])),
                ),
            ])),
        ),
    ]),
};

static INITIALIZE_SHARE_GROUP_STATE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("state_epoch", Fixed(4)),
                        field("start_offset", Fixed(8)),
                    ])),
                ),
            ])),
        ),
    ]),
};

static READ_SHARE_GROUP_STATE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition", Fixed(4)), field("leader_epoch", Fixed(4))])),
                ),
            ])),
        ),
    ]),
};

static WRITE_SHARE_GROUP_STATE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition", Fixed(4)),
                        field("state_epoch", Fixed(4)),
                        field("leader_epoch", Fixed(4)),
                        field("start_offset", Fixed(8)),
                        field(
                            "state_batches",
                            Rows(&plain(&[
                                field("first_offset", Fixed(8)),
                                field("last_offset", Fixed(8)),
                                field("delivery_state", Fixed(1)),
                                field("delivery_count", Fixed(2)),
                            ])),
                        ),
                    ])),
                ),
            ])),
        ),
    ]),
};

static DELETE_SHARE_GROUP_STATE: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field("partitions", Rows(&plain(&[field("partition", Fixed(4))]))),
            ])),
        ),
    ]),
};

static READ_SHARE_GROUP_STATE_SUMMARY: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_id", Fixed(16)),
                field(
                    "partitions",
                    Rows(&plain(&[field("partition", Fixed(4)), field("leader_epoch", Fixed(4))])),
                ),
            ])),
        ),
    ]),
};

static DESCRIBE_SHARE_GROUP_OFFSETS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[field(
        "groups",
        Rows(&plain(&[
            field("group_id", Text),
            field(
                "topics",
                Rows(&plain(&[field("topic_name", Text), field("partitions", List(&Fixed(4)))])),
            ),
        ])),
    )]),
};

static ALTER_SHARE_GROUP_OFFSETS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field(
            "topics",
            Rows(&plain(&[
                field("topic_name", Text),
                field(
                    "partitions",
                    Rows(&plain(&[
                        field("partition_index", Fixed(4)),
                        field("start_offset", Fixed(8)),
                    ])),
                ),
            ])),
        ),
    ]),
};

static DELETE_SHARE_GROUP_OFFSETS: Shape = Shape {
    flexible_since: 0,
    fields: plain(&[
        field("group_id", Text),
        field("topics", Rows(&plain(&[field("topic_name", Text)]))),
    ]),
};
