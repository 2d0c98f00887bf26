//! The methods of AMQP 0-9-1 and of RabbitMQ's extensions as data: names, numbers, arguments and replies. The table
//! shares no code with our gateway's codec, so that a fault there is not hidden by the same fault here.

use std::sync::OnceLock;

/// Type of an argument on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bit,
    Octet,
    Short,
    Long,
    LongLong,
    ShortText,
    LongText,
    Table,
}

#[derive(Clone, Debug)]
pub(super) struct Method {
    pub(super) class: u16,
    pub(super) number: u16,
    /// As in `queue.declare`.
    pub(super) name: String,
    pub(super) arguments: Vec<(&'static str, Kind)>,
    /// Methods that reply to it; empty if none does.
    pub(super) answers: Vec<&'static str>,
    /// Whether a content header and bodies follow it.
    pub(super) has_content: bool,
}

/// Class and number, name, arguments, `=>` the methods that reply to it, `+` if content follows.
const TABLE: &str = "
10.10  connection.start            octet:version_major octet:version_minor table:server_properties longtext:mechanisms longtext:locales
10.11  connection.start_ok         table:client_properties shorttext:mechanism longtext:response shorttext:locale => connection.tune connection.secure
10.20  connection.secure           longtext:challenge
10.21  connection.secure_ok        longtext:response => connection.tune
10.30  connection.tune             short:channel_max long:frame_max short:heartbeat
10.31  connection.tune_ok          short:channel_max long:frame_max short:heartbeat
10.40  connection.open             shorttext:virtual_host shorttext:capabilities bit:insist => connection.open_ok
10.41  connection.open_ok          shorttext:known_hosts
10.50  connection.close            short:reply_code shorttext:reply_text short:class_id short:method_id => connection.close_ok
10.51  connection.close_ok
10.60  connection.blocked          shorttext:reason
10.61  connection.unblocked
10.70  connection.update_secret    longtext:new_secret shorttext:reason => connection.update_secret_ok
10.71  connection.update_secret_ok
20.10  channel.open                shorttext:out_of_band => channel.open_ok
20.11  channel.open_ok             longtext:channel_id
20.20  channel.flow                bit:active => channel.flow_ok
20.21  channel.flow_ok             bit:active
20.40  channel.close               short:reply_code shorttext:reply_text short:class_id short:method_id => channel.close_ok
20.41  channel.close_ok
30.10  access.request              shorttext:realm bit:exclusive bit:passive bit:active bit:write bit:read => access.request_ok
30.11  access.request_ok           short:ticket
40.10  exchange.declare            short:ticket shorttext:exchange shorttext:type bit:passive bit:durable bit:auto_delete bit:internal bit:no_wait table:arguments => exchange.declare_ok
40.11  exchange.declare_ok
40.20  exchange.delete             short:ticket shorttext:exchange bit:if_unused bit:no_wait => exchange.delete_ok
40.21  exchange.delete_ok
40.30  exchange.bind               short:ticket shorttext:destination shorttext:source shorttext:routing_key bit:no_wait table:arguments => exchange.bind_ok
40.31  exchange.bind_ok
40.40  exchange.unbind             short:ticket shorttext:destination shorttext:source shorttext:routing_key bit:no_wait table:arguments => exchange.unbind_ok
40.51  exchange.unbind_ok
50.10  queue.declare               short:ticket shorttext:queue bit:passive bit:durable bit:exclusive bit:auto_delete bit:no_wait table:arguments => queue.declare_ok
50.11  queue.declare_ok            shorttext:queue long:message_count long:consumer_count
50.20  queue.bind                  short:ticket shorttext:queue shorttext:exchange shorttext:routing_key bit:no_wait table:arguments => queue.bind_ok
50.21  queue.bind_ok
50.30  queue.purge                 short:ticket shorttext:queue bit:no_wait => queue.purge_ok
50.31  queue.purge_ok              long:message_count
50.40  queue.delete                short:ticket shorttext:queue bit:if_unused bit:if_empty bit:no_wait => queue.delete_ok
50.41  queue.delete_ok             long:message_count
50.50  queue.unbind                short:ticket shorttext:queue shorttext:exchange shorttext:routing_key table:arguments => queue.unbind_ok
50.51  queue.unbind_ok
60.10  basic.qos                   long:prefetch_size short:prefetch_count bit:global => basic.qos_ok
60.11  basic.qos_ok
60.20  basic.consume               short:ticket shorttext:queue shorttext:consumer_tag bit:no_local bit:no_ack bit:exclusive bit:no_wait table:arguments => basic.consume_ok
60.21  basic.consume_ok            shorttext:consumer_tag
60.30  basic.cancel                shorttext:consumer_tag bit:no_wait => basic.cancel_ok
60.31  basic.cancel_ok             shorttext:consumer_tag
60.40  basic.publish               short:ticket shorttext:exchange shorttext:routing_key bit:mandatory bit:immediate +
60.50  basic.return                short:reply_code shorttext:reply_text shorttext:exchange shorttext:routing_key +
60.60  basic.deliver               shorttext:consumer_tag longlong:delivery_tag bit:redelivered shorttext:exchange shorttext:routing_key +
60.70  basic.get                   short:ticket shorttext:queue bit:no_ack => basic.get_ok basic.get_empty
60.71  basic.get_ok                longlong:delivery_tag bit:redelivered shorttext:exchange shorttext:routing_key long:message_count +
60.72  basic.get_empty             shorttext:cluster_id
60.80  basic.ack                   longlong:delivery_tag bit:multiple
60.90  basic.reject                longlong:delivery_tag bit:requeue
60.100 basic.recover_async         bit:requeue
60.110 basic.recover               bit:requeue => basic.recover_ok
60.111 basic.recover_ok
60.120 basic.nack                  longlong:delivery_tag bit:multiple bit:requeue
85.10  confirm.select              bit:no_wait => confirm.select_ok
85.11  confirm.select_ok
90.10  tx.select                   => tx.select_ok
90.11  tx.select_ok
90.20  tx.commit                   => tx.commit_ok
90.21  tx.commit_ok
90.30  tx.rollback                 => tx.rollback_ok
90.31  tx.rollback_ok
";

/// Reserved arguments: sent as zero and not shown.
pub(super) const WITHOUT_MEANING: [&str; 5] =
    ["ticket", "known_hosts", "cluster_id", "channel_id", "out_of_band"];

pub(super) fn all() -> &'static [Method] {
    static METHODS: OnceLock<Vec<Method>> = OnceLock::new();
    METHODS.get_or_init(|| TABLE.lines().filter_map(parse).collect())
}

pub(super) fn named(name: &str) -> Option<&'static Method> {
    all().iter().find(|method| method.name == name)
}

pub(super) fn numbered(class: u16, number: u16) -> Option<&'static Method> {
    all().iter().find(|method| method.class == class && method.number == number)
}

fn parse(line: &'static str) -> Option<Method> {
    let mut words = line.split_whitespace();
    let (class, number) = words.next()?.split_once('.')?;
    let name = words.next()?.to_owned();
    let mut method = Method {
        class: class.parse().ok()?,
        number: number.parse().ok()?,
        name,
        arguments: vec![],
        answers: vec![],
        has_content: false,
    };
    let mut answers = false;
    for word in words {
        match word {
            "=>" => answers = true,
            "+" => method.has_content = true,
            answer if answers => method.answers.push(answer),
            argument => {
                let (kind, name) = argument.split_once(':')?;
                method.arguments.push((name, kind_named(kind)?));
            }
        }
    }
    Some(method)
}

fn kind_named(name: &str) -> Option<Kind> {
    Some(match name {
        "bit" => Kind::Bit,
        "octet" => Kind::Octet,
        "short" => Kind::Short,
        "long" => Kind::Long,
        "longlong" => Kind::LongLong,
        "shorttext" => Kind::ShortText,
        "longtext" => Kind::LongText,
        "table" => Kind::Table,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_line_and_every_reply_names_a_method() {
        assert_eq!(all().len(), TABLE.lines().filter(|line| !line.is_empty()).count());
        let answers = all().iter().flat_map(|method| &method.answers);
        assert!(answers.clone().count() > 25);
        for answer in answers {
            assert!(named(answer).is_some(), "{answer}");
        }
    }
}
