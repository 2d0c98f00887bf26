//! Bounds of documents from clients, by their memory once they are parsed.

use crate::json::JsonLimits;

/// A document of up to this size is parsed about as fast as another thread starts. The CPU pool parses larger ones.
pub const PARSED_INLINE_BYTES_MAX: usize = 16 << 10;
/// Depth of a JSON document. The parser has the same limit.
pub const JSON_DEPTH_MAX: usize = 127;

/// A request body of `/v1`, except records: 1,000 settles, or some hundred settings.
pub const HTTP_DOCUMENT_LIMITS: JsonLimits =
    JsonLimits { values: 50_000, depth: JSON_DEPTH_MAX, bytes: 16 << 20 };
/// Records of one request, with their keys, values and headers.
pub const HTTP_RECORDS_HELD_BYTES_MAX: usize = 96 << 20;
/// Headers of one record.
pub const HTTP_RECORD_HEADERS_MAX: usize = 10_000;
/// A file of definitions: some 100,000 queues with arguments. More are imported as several files.
pub const HTTP_API_DEFINITIONS_LIMITS: JsonLimits =
    JsonLimits { values: 4_000_000, depth: JSON_DEPTH_MAX, bytes: 160 << 20 };
/// A message that is published through the management API, with its properties.
pub const HTTP_API_MESSAGE_LIMITS: JsonLimits =
    JsonLimits { values: 50_000, depth: JSON_DEPTH_MAX, bytes: 40 << 20 };
/// An operation of the command line. It may name 10,000 records or offsets.
pub const OPERATION_LIMITS: JsonLimits =
    JsonLimits { values: 150_000, depth: JSON_DEPTH_MAX, bytes: 32 << 20 };
/// Concurrent operations of the command line that hold a page of records, or a piece of a backup. Others of their
/// class wait.
pub const RECORD_OPERATIONS_AT_ONCE_MAX: usize = 4;
pub const BACKUP_OPERATIONS_AT_ONCE_MAX: usize = 4;
pub const GROUP_OPERATIONS_AT_ONCE_MAX: usize = 16;
/// The keys of a token issuer.
pub const TOKEN_KEYS_LIMITS: JsonLimits =
    JsonLimits { values: 20_000, depth: JSON_DEPTH_MAX, bytes: 8 << 20 };
