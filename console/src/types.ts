// Response types of /v1, as defined in docs/user/openapi.json.
export type Payload = string | { base64: string } | null;
export interface Page<T> { items: T[]; next: string | null }
export interface TopicRow { name: string; partitions: number; groups: number; records?: number; appended?: number }
export interface Topic {
  name: string; id: string; created_ms: number;
  partitions: { partition: number; start: number; end: number }[];
  config: Record<string, string>; groups: string[];
}
export interface ConfigValue { name: string; value: string; source: string; otherwise: string; documentation: string }
export interface StoredRecord {
  partition: number; offset: number; timestamp_ms: number; key: Payload; value: Payload;
  headers: { name: string; value: Payload }[];
}
export interface QueueRow {
  topic: string; group: string; partitions: number; paused: boolean; depth: number; ready: number; leased: number;
  leased_bytes: number; delayed: number; consumers: number; oldest_unsettled_ms: number | null;
  lag_seconds: number | null; published: number; delivered: number; redelivered: number; settled: number;
  dead_letters: number; rates: { published: number; delivered: number; settled: number }; at_ms: number;
}
export interface QueueReport {
  summary: QueueRow; created_ms: number; config: { name: string; value: string; own: boolean }[];
  progress: { partition: number; floor: number; end: number; settled_above: number; retried: number }[];
  leases: { partition: number; offset: number; attempt: number; session: number; expires_ms: number | null }[];
}
export interface WaitingRecord extends StoredRecord { state: string; until_ms: number | null; attempts: number }
export interface DeadCount {
  source: string | null; group: string | null; reason: string | null; records: number;
  first_ms: number | null; last_ms: number | null;
}
export interface DeadLetter extends StoredRecord {
  death: { reason: string | null; attempts: number | null; topic: string | null; group: string | null;
    partition: number | null; offset: number | null; time_ms: number | null };
}
export interface Lag { lag: number; partitions: { topic: string; partition: number; offset: number; end: number; lag: number }[] }
export interface Connection { id: number; protocol: string; peer: string; since_ms: number; client: string | null; user: string | null }
export interface Overview {
  at_ms: number; version: string; cluster: string; node: number; alarms: { alarm: string; text: string }[];
  open_to_everybody: boolean; topics: number; partitions: number; lease_groups: number;
  protocols: { protocol: string; connections: number; connections_opened: number; records_received: number;
    bytes_received: number; bytes_delivered: number }[];
  leases: { delivered: number; redelivered: number; settled: number; dead_letters: number };
  disk: { free_bytes: number | null; size_bytes: number | null; segment_bytes: number; live_bytes: number; segments: number };
  journal: { appended_bytes: number; entries: number; syncs: number; sync_micros: number; queued_bytes: number;
    sync_buckets: { to_micros: number | null; syncs: number }[] };
  shards: { shard: number; leader: number | null; term: number; log_end: number; applied: number;
    lag_entries: number | null; segments: number; segment_bytes: number; live_bytes: number; full: boolean }[];
  process: { cpu_seconds: number; resident_bytes: number | null; open_files: number | null; open_files_max: number | null };
  certificate_ends_ms: number | null; logins_refused: number;
}
export interface Cluster {
  clustered: boolean; node: number;
  status: null | {
    nodes: { node: number; address: string; rack: string | null; standing: string; live: boolean; why: string | null; leads: number; holds: number }[];
    shards: { shard: number; leader: number | null; voters: number[]; learners: number[]; changing: boolean;
      lags: { node: number; entries: number }[] }[];
    under_way: string[]; at_risk: string[]; verdict: { can_lose_a_node: boolean; text: string };
  };
}
export interface User { name: string; of_settings: boolean; loopback_only: boolean; scram: string[];
  permissions: { virtual_host: string; configure: string; write: string; read: string }[] }
export interface Rule { resource: string; pattern: string; name: string; principal: string; host: string; action: string; verdict: string }
export interface SessionInfo { session: number; protocol: string | null; user: string | null; client: string | null; peer: string | null }
export interface HistoryEvent { at_ms: number; node: number; what: string; reason: string | null; attempt: number | null; session: SessionInfo | null }
export interface History {
  topic: string; partition: number; offset: number; presence: "there" | "deleted" | "to-come"; start: number; end: number; record: StoredRecord | null;
  death: null | { reason: string | null; topic: string | null; partition: number | null; offset: number | null };
  groups: { group: string; state: string; until_ms: number | null; attempts: number; behind: number | null; session: SessionInfo | null;
    paused: boolean; dead_letter_topic: string | null; events: HistoryEvent[] }[];
  offset_groups: { group: string; offset: number; read: boolean }[]; truncated: boolean;
  remembered_since_ms: number | null; silent_nodes: number[];
  traced: { cut_short: boolean } | null;
}
export interface TracePage { records: History[]; looked_at: number; next: string | null }
export interface SearchPage { records: StoredRecord[]; looked_at: number; looked_at_bytes: number; left: number; next: string | null }
export interface Membership { kind: string; state: string; assignor: string | null; epoch: number; members: number }
export interface Assignment { topic: string; partitions: number[] }
export interface GroupMember {
  id: string; instance: string | null; client: string; address: string; topics: string[] | null;
  assignment: Assignment[] | null; target: Assignment[] | null;
}
export interface OffsetRow { topic: string; partition: number; offset: number; metadata: string; start: number; end: number; lag: number }

// Response types of RabbitMQ's management API: the fields that the console shows.
export interface NumberedPage<T> { items: T[]; page: number; page_count: number; filtered_count: number }
export type Arguments = Record<string, unknown>;
export interface Queue {
  name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; exclusive: boolean; arguments: Arguments;
  policy: string | null; messages_ready: number; messages_unacknowledged: number; consumers: number;
}
export interface Exchange { name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; internal: boolean; arguments: Arguments }
export interface Binding {
  source: string; vhost: string; destination: string; destination_type: string; routing_key: string; arguments: Arguments; properties_key: string;
}
export interface AmqpConnection {
  name: string; user: string; protocol: string; state: string; connected_at: number; client_properties: Arguments;
  vhost?: string; ssl?: boolean; channels?: number; user_provided_name?: string;
}
export interface Channel {
  name: string; user: string; vhost: string; confirm: boolean; transactional: boolean; prefetch_count: number; global_prefetch_count: number;
  consumer_count: number; messages_unacknowledged: number; messages_unconfirmed: number;
}
export interface Consumer {
  consumer_tag: string; queue: { name: string; vhost: string }; channel_details: { name: string }; ack_required: boolean;
  exclusive: boolean; active: boolean; prefetch_count: number; arguments: Arguments;
}
