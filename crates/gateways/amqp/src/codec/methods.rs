//! The methods of AMQP 0-9-1 and of RabbitMQ's extensions (`amqp-rabbitmq-0.9.1.json`), both ways.
//!
//! The table below lists each method's name, number and arguments in order. Decoding, encoding and the names in error
//! texts are derived from it. A method borrows from its frame.

use bytes::{BufMut, BytesMut};

use super::fields::{EncodedTable, LongString, MalformedFields, Reader, Writer};

/// Number of a class and of a method in it; close methods name the failed method by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MethodId {
    pub class: u16,
    pub method: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MethodError {
    #[error("class {} has no method {}", .0.class, .0.method)]
    Unknown(MethodId),
    #[error("{name}: {malformed}")]
    Malformed { id: MethodId, name: &'static str, malformed: MalformedFields },
    #[error("the frame ends within the method's number")]
    Truncated,
}

macro_rules! methods {
    ($(
        $class:literal $class_name:literal {
            $($method:literal $method_name:literal $variant:ident {
                $($field:ident: $kind:ty),* $(,)?
            })*
        }
    )*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Method<'a> {
            $($($variant($variant<'a>),)*)*
        }

        $($(
            #[doc = concat!("`", $class_name, ".", $method_name, "`")]
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
            pub struct $variant<'a> {
                $(pub $field: $kind,)*
                pub lifetime: std::marker::PhantomData<&'a ()>,
            }

            impl<'a> $variant<'a> {
                pub const ID: MethodId = MethodId { class: $class, method: $method };
            }

            impl<'a> From<$variant<'a>> for Method<'a> {
                fn from(method: $variant<'a>) -> Self {
                    Self::$variant(method)
                }
            }
        )*)*

        impl<'a> Method<'a> {
            /// Decodes the payload of a method frame.
            pub fn decode(payload: &'a [u8]) -> Result<Self, MethodError> {
                let mut reader = Reader::new(payload);
                let id = match (reader.read(), reader.read()) {
                    (Ok(class), Ok(method)) => MethodId { class, method },
                    _ => return Err(MethodError::Truncated),
                };
                match id {
                    $($($variant::ID => {
                        let mut read = || {
                            let method = $variant {
                                $($field: reader.read()?,)*
                                lifetime: std::marker::PhantomData,
                            };
                            std::mem::replace(&mut reader, Reader::new(&[])).finish()?;
                            Ok(method)
                        };
                        read().map(Self::$variant).map_err(|malformed| {
                            let name = concat!($class_name, ".", $method_name);
                            MethodError::Malformed { id, name, malformed }
                        })
                    })*)*
                    unknown => Err(MethodError::Unknown(unknown)),
                }
            }

            /// Writes the payload of a method frame.
            pub fn encode(&self, out: &mut BytesMut) {
                let id = self.id();
                out.put_u16(id.class);
                out.put_u16(id.method);
                #[allow(unused_mut, unused_variables)]
                match self {
                    $($(Self::$variant(method) => {
                        let mut writer = Writer::new(out);
                        $(writer.write(&method.$field);)*
                    })*)*
                }
            }

            pub fn id(&self) -> MethodId {
                match self {
                    $($(Self::$variant(_) => $variant::ID,)*)*
                }
            }

            /// The name as in the specification: `queue.declare`.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Self::$variant(_) => concat!($class_name, ".", $method_name),)*)*
                }
            }
        }
    };
}

methods! {
    10 "connection" {
        10 "start" ConnectionStart {
            version_major: u8, version_minor: u8, server_properties: EncodedTable<'a>,
            mechanisms: LongString<'a>, locales: LongString<'a>,
        }
        11 "start_ok" ConnectionStartOk {
            client_properties: EncodedTable<'a>, mechanism: &'a str, response: LongString<'a>,
            locale: &'a str,
        }
        20 "secure" ConnectionSecure { challenge: LongString<'a> }
        21 "secure_ok" ConnectionSecureOk { response: LongString<'a> }
        30 "tune" ConnectionTune { channel_max: u16, frame_max: u32, heartbeat: u16 }
        31 "tune_ok" ConnectionTuneOk { channel_max: u16, frame_max: u32, heartbeat: u16 }
        40 "open" ConnectionOpen { virtual_host: &'a str, capabilities: &'a str, insist: bool }
        41 "open_ok" ConnectionOpenOk { known_hosts: &'a str }
        50 "close" ConnectionClose {
            reply_code: u16, reply_text: &'a str, class_id: u16, method_id: u16,
        }
        51 "close_ok" ConnectionCloseOk {}
        60 "blocked" ConnectionBlocked { reason: &'a str }
        61 "unblocked" ConnectionUnblocked {}
        70 "update_secret" ConnectionUpdateSecret { new_secret: LongString<'a>, reason: &'a str }
        71 "update_secret_ok" ConnectionUpdateSecretOk {}
    }
    20 "channel" {
        10 "open" ChannelOpen { out_of_band: &'a str }
        11 "open_ok" ChannelOpenOk { channel_id: LongString<'a> }
        20 "flow" ChannelFlow { active: bool }
        21 "flow_ok" ChannelFlowOk { active: bool }
        40 "close" ChannelClose {
            reply_code: u16, reply_text: &'a str, class_id: u16, method_id: u16,
        }
        41 "close_ok" ChannelCloseOk {}
    }
    30 "access" {
        10 "request" AccessRequest {
            realm: &'a str, exclusive: bool, passive: bool, active: bool, write: bool, read: bool,
        }
        11 "request_ok" AccessRequestOk { ticket: u16 }
    }
    40 "exchange" {
        10 "declare" ExchangeDeclare {
            ticket: u16, exchange: &'a str, kind: &'a str, passive: bool, durable: bool,
            auto_delete: bool, internal: bool, no_wait: bool, arguments: EncodedTable<'a>,
        }
        11 "declare_ok" ExchangeDeclareOk {}
        20 "delete" ExchangeDelete {
            ticket: u16, exchange: &'a str, if_unused: bool, no_wait: bool,
        }
        21 "delete_ok" ExchangeDeleteOk {}
        30 "bind" ExchangeBind {
            ticket: u16, destination: &'a str, source: &'a str, routing_key: &'a str,
            no_wait: bool, arguments: EncodedTable<'a>,
        }
        31 "bind_ok" ExchangeBindOk {}
        40 "unbind" ExchangeUnbind {
            ticket: u16, destination: &'a str, source: &'a str, routing_key: &'a str,
            no_wait: bool, arguments: EncodedTable<'a>,
        }
        51 "unbind_ok" ExchangeUnbindOk {}
    }
    50 "queue" {
        10 "declare" QueueDeclare {
            ticket: u16, queue: &'a str, passive: bool, durable: bool, exclusive: bool,
            auto_delete: bool, no_wait: bool, arguments: EncodedTable<'a>,
        }
        11 "declare_ok" QueueDeclareOk { queue: &'a str, message_count: u32, consumer_count: u32 }
        20 "bind" QueueBind {
            ticket: u16, queue: &'a str, exchange: &'a str, routing_key: &'a str, no_wait: bool,
            arguments: EncodedTable<'a>,
        }
        21 "bind_ok" QueueBindOk {}
        30 "purge" QueuePurge { ticket: u16, queue: &'a str, no_wait: bool }
        31 "purge_ok" QueuePurgeOk { message_count: u32 }
        40 "delete" QueueDelete {
            ticket: u16, queue: &'a str, if_unused: bool, if_empty: bool, no_wait: bool,
        }
        41 "delete_ok" QueueDeleteOk { message_count: u32 }
        50 "unbind" QueueUnbind {
            ticket: u16, queue: &'a str, exchange: &'a str, routing_key: &'a str,
            arguments: EncodedTable<'a>,
        }
        51 "unbind_ok" QueueUnbindOk {}
    }
    60 "basic" {
        10 "qos" BasicQos { prefetch_size: u32, prefetch_count: u16, global: bool }
        11 "qos_ok" BasicQosOk {}
        20 "consume" BasicConsume {
            ticket: u16, queue: &'a str, consumer_tag: &'a str, no_local: bool, no_ack: bool,
            exclusive: bool, no_wait: bool, arguments: EncodedTable<'a>,
        }
        21 "consume_ok" BasicConsumeOk { consumer_tag: &'a str }
        30 "cancel" BasicCancel { consumer_tag: &'a str, no_wait: bool }
        31 "cancel_ok" BasicCancelOk { consumer_tag: &'a str }
        40 "publish" BasicPublish {
            ticket: u16, exchange: &'a str, routing_key: &'a str, mandatory: bool, immediate: bool,
        }
        50 "return" BasicReturn {
            reply_code: u16, reply_text: &'a str, exchange: &'a str, routing_key: &'a str,
        }
        60 "deliver" BasicDeliver {
            consumer_tag: &'a str, delivery_tag: u64, redelivered: bool, exchange: &'a str,
            routing_key: &'a str,
        }
        70 "get" BasicGet { ticket: u16, queue: &'a str, no_ack: bool }
        71 "get_ok" BasicGetOk {
            delivery_tag: u64, redelivered: bool, exchange: &'a str, routing_key: &'a str,
            message_count: u32,
        }
        72 "get_empty" BasicGetEmpty { cluster_id: &'a str }
        80 "ack" BasicAck { delivery_tag: u64, multiple: bool }
        90 "reject" BasicReject { delivery_tag: u64, requeue: bool }
        100 "recover_async" BasicRecoverAsync { requeue: bool }
        110 "recover" BasicRecover { requeue: bool }
        111 "recover_ok" BasicRecoverOk {}
        120 "nack" BasicNack { delivery_tag: u64, multiple: bool, requeue: bool }
    }
    85 "confirm" {
        10 "select" ConfirmSelect { no_wait: bool }
        11 "select_ok" ConfirmSelectOk {}
    }
    90 "tx" {
        10 "select" TxSelect {}
        11 "select_ok" TxSelectOk {}
        20 "commit" TxCommit {}
        21 "commit_ok" TxCommitOk {}
        30 "rollback" TxRollback {}
        31 "rollback_ok" TxRollbackOk {}
    }
}
