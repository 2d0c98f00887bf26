use access_rules::Permissions;
use access_rules::acl::Pattern;

use super::*;
use crate::permissions::Patterns;

fn rule(verdict: Verdict, action: Action, pattern: Pattern, name: &str) -> Rule {
    let (principal, host) = ("User:app".to_owned(), "*".to_owned());
    let name = name.to_owned();
    Rule { resource: Resource::Topic, pattern, name, principal, host, action, verdict }
}

fn rights(rules: Vec<Rule>, grant: Option<[&str; 3]>) -> Rights {
    let grant = grant.map(|set| {
        let [configure, write, read] = set.map(str::to_owned);
        let set = Permissions { configure, write, read };
        let patterns = Patterns::compile(&set).expect("patterns");
        (Arc::from(DEFAULT_VHOST), Grant::of(Arc::new(patterns)))
    });
    let grants = grant.into_iter().collect();
    Rights {
        stamp: 1,
        everything: false,
        across: true,
        rules,
        grants,
        tags: Tags::NONE,
        caller: None,
    }
}

#[test]
fn action_without_a_rule_is_denied_and_a_denial_wins() {
    use Verdict::{Allow, Deny};
    let none = rights(Vec::new(), None);
    assert!(!none.allows(Action::Describe, Resource::Topic, "a"));
    assert!(!none.allows_some(Action::Write, Resource::Topic));
    let rights = rights(
        vec![
            rule(Allow, Action::Any, Pattern::Prefixed, "a"),
            rule(Deny, Action::Write, Pattern::Literal, "a.secret"),
        ],
        None,
    );
    assert!(rights.allows(Action::Write, Resource::Topic, "a.public"));
    assert!(!rights.allows(Action::Write, Resource::Topic, "a.secret"));
    assert!(rights.allows(Action::Read, Resource::Topic, "a.secret"));
    assert!(!rights.allows(Action::Read, Resource::Topic, "b"));
    assert!(!rights.allows(Action::Read, Resource::Group, "a"));
    assert!(rights.allows_some(Action::Write, Resource::Topic));
    assert_eq!(rights.bits(&[Action::Read, Action::Write], Resource::Topic, "a.secret"), 1 << 3);
    let told = rights.decide(Action::Write, Resource::Topic, "a.secret").to_string();
    assert!(told.contains("deny User:app write of literal topic"), "{told}");
}

#[test]
fn denial_of_all_names_overrides_every_allow_rule() {
    let all = rule(Verdict::Deny, Action::Write, Pattern::Literal, "*");
    let one = rule(Verdict::Allow, Action::Write, Pattern::Literal, "a");
    assert!(!rights(vec![all, one], None).allows_some(Action::Write, Resource::Topic));
}

#[test]
fn rabbitmq_permissions_cover_topics_and_groups_only() {
    let rights = rights(Vec::new(), Some(["^c", "^w", "^r"]));
    for (action, resource, name, is_allowed) in [
        (Action::Read, Resource::Topic, "r", true),
        (Action::Read, Resource::Topic, "w", false),
        (Action::Write, Resource::Topic, "w", true),
        (Action::Create, Resource::Topic, "c", true),
        (Action::Delete, Resource::Topic, "r", false),
        (Action::Describe, Resource::Topic, "w", true),
        (Action::Describe, Resource::Topic, "x", false),
        (Action::Read, Resource::Group, "r", true),
        (Action::Read, Resource::Group, "c", false),
        (Action::Alter, Resource::Cluster, CLUSTER, false),
        (Action::Create, Resource::Cluster, CLUSTER, false),
    ] {
        assert_eq!(rights.allows(action, resource, name), is_allowed, "{action:?} {name}");
    }
    let denied = rule(Verdict::Deny, Action::Any, Pattern::Literal, "r");
    let rights = Rights { rules: vec![denied], ..rights };
    assert!(!rights.allows(Action::Read, Resource::Topic, "r"), "a denial wins here, too");
}

const QUEUE: AccessTarget<'_> = AccessTarget::Queue { virtual_host: "/", name: "q", topic: "q" };
const ELSEWHERE: AccessTarget<'_> =
    AccessTarget::Queue { virtual_host: "v", name: "q", topic: "amqp.v.q" };

#[test]
fn user_without_rights_may_do_nothing_and_super_user_everything() {
    let (none, all) = (rights(Vec::new(), None), Rights::everything());
    let exchange = AccessTarget::Exchange { virtual_host: "/", name: "e" };
    let group = AccessTarget::Group { topic: "t", group: "g" };
    for operation in Operation::ALL {
        for target in
            [AccessTarget::Topic("t"), QUEUE, ELSEWHERE, group, exchange, AccessTarget::Cluster]
        {
            assert!(!none.may(*operation, target), "{operation:?} {target:?}");
            assert!(all.may(*operation, target), "{operation:?} {target:?}");
        }
    }
    assert!(!none.opens("/") && all.opens("v"));
}

#[test]
fn rights_to_a_topic_are_rights_to_its_queue_in_the_default_vhost() {
    let (append, browse) = (Operation::Append, Operation::Browse);
    let by_rule = rights(vec![rule(Verdict::Allow, Action::Write, Pattern::Literal, "q")], None);
    assert!(by_rule.may(append, QUEUE) && by_rule.may(append, AccessTarget::Topic("q")));
    assert!(!by_rule.may(browse, QUEUE) && !by_rule.may(append, ELSEWHERE));
    assert!(by_rule.opens("/") && !by_rule.opens("v"));
    let by_permission = rights(Vec::new(), Some(["", "^q$", ""]));
    assert!(
        by_permission.may(append, QUEUE) && by_permission.may(append, AccessTarget::Topic("q"))
    );
    assert!(!by_permission.may(append, ELSEWHERE));
    assert!(by_permission.may(Operation::Describe, AccessTarget::Topic("q")));
}

#[test]
fn denial_of_the_topic_overrides_permissions_on_the_queue() {
    let deny = |action, name| vec![rule(Verdict::Deny, action, Pattern::Literal, name)];
    let all = Some([".*", ".*", ".*"]);
    let read = rights(deny(Action::Read, "q"), all);
    assert!(!read.may(Operation::Consume, QUEUE) && read.may(Operation::Append, QUEUE));
    assert!(!read.has_rules_on_appends(Verdict::Deny));
    let write = rights(deny(Action::Write, "q"), all);
    assert!(write.has_rules_on_appends(Verdict::Deny));
    assert_eq!(write.append_by_rules("q"), Some(Verdict::Deny));
    assert_eq!(write.append_by_rules("other"), None);
    let delete = rights(deny(Action::Delete, "q"), all);
    assert!(!delete.may(Operation::Purge, QUEUE) && !delete.may(Operation::Delete, QUEUE));
    assert!(delete.may(Operation::Consume, QUEUE));
    // Exchanges are not topics.
    let exchange = AccessTarget::Exchange { virtual_host: "/", name: "q" };
    assert!(rights(deny(Action::Any, "q"), all).may(Operation::Publish, exchange));
}

#[test]
fn separated_protocols_use_only_their_own_rules_or_permissions() {
    let denied = rule(Verdict::Deny, Action::Any, Pattern::Literal, "q");
    let apart = Rights { across: false, ..rights(vec![denied], Some([".*", ".*", ".*"])) };
    assert!(apart.may(Operation::Consume, QUEUE));
    assert!(!apart.may(Operation::Browse, AccessTarget::Topic("other")), "no rule lets it");
    assert!(!apart.allows(Action::Read, Resource::Topic, "other"));
    assert!(!apart.has_rules_on_appends(Verdict::Deny));
    assert_eq!(apart.append_by_rules("q"), None);
    let allowed = rule(Verdict::Allow, Action::Read, Pattern::Literal, "q");
    let apart = Rights { across: false, ..rights(vec![allowed], None) };
    assert!(!apart.may(Operation::Consume, QUEUE) && !apart.opens("/"));
    assert!(apart.allows(Action::Read, Resource::Topic, "q"));
}

#[test]
fn named_group_needs_a_right_to_the_group() {
    let read = |resource, name: &str| Rule {
        resource,
        ..rule(Verdict::Allow, Action::Read, Pattern::Literal, name)
    };
    let of = |group| AccessTarget::Group { topic: "t", group };
    let topic = rights(vec![read(Resource::Topic, "t")], None);
    assert!(topic.may(Operation::Consume, of(MAIN_LEASE_GROUP)));
    assert!(!topic.may(Operation::Consume, of("g")));
    let both = rights(vec![read(Resource::Topic, "t"), read(Resource::Group, "g")], None);
    assert!(both.may(Operation::Consume, of("g")) && !both.may(Operation::Seek, of("g")));
    assert!(!both.may(Operation::DeleteGroup, of("g")));
}

/// Rights of a user with all permissions in these virtual hosts.
fn tenant(vhosts: &[&str], rules: Vec<Rule>) -> Rights {
    let grant = || {
        let patterns = Patterns::compile(&Permissions::everything()).expect("patterns");
        Grant::of(Arc::new(patterns))
    };
    let grants = vhosts.iter().map(|vhost| (Arc::from(*vhost), grant())).collect();
    Rights { grants, ..rights(rules, None) }
}

const FOREIGN: &str = "amqp.shop.secretq";

#[test]
fn permissions_of_a_vhost_apply_only_to_its_topics_and_groups() {
    let (slash, shop) = (tenant(&["/"], Vec::new()), tenant(&["shop"], Vec::new()));
    let below = ["amqp.shop.secretq", "amqp.shop.secretq.dead", "amqp.shop.made_by_kafka"];
    for name in below {
        let group = AccessTarget::Group { topic: name, group: "g" };
        for operation in Operation::ALL.iter().filter(|it| it.needs().topic.is_some()) {
            for target in [AccessTarget::Topic(name), group] {
                assert!(!slash.may(*operation, target), "{operation:?} {target:?}");
                assert!(shop.may(*operation, target), "{operation:?} {target:?}");
            }
        }
        for action in Action::ALL {
            for resource in [Resource::Topic, Resource::Group] {
                assert!(!slash.allows(*action, resource, name), "{action:?} {name}");
                let has_permission = !permissions(*action, resource).is_empty();
                assert_eq!(shop.allows(*action, resource, name), has_permission, "{action:?}");
            }
        }
        assert!(!slash.creates_topic("", name) && shop.creates_topic("", name));
    }
    let plain = "orders";
    assert!(slash.allows(Action::Read, Resource::Topic, plain));
    assert!(!shop.allows(Action::Describe, Resource::Topic, plain));
    assert!(shop.allows_some(Action::Write, Resource::Topic), "to its own topics");
}

#[test]
fn permission_pattern_is_matched_against_the_queue_name() {
    let patterns = Permissions { read: "^secretq$".to_owned(), ..Permissions::everything() };
    let grant = Grant::of(Arc::new(Patterns::compile(&patterns).expect("patterns")));
    let shop = Rights { grants: [(Arc::from("shop"), grant)].into(), ..rights(Vec::new(), None) };
    let reads = |name: &str| shop.allows(Action::Read, Resource::Topic, name);
    assert!(reads(FOREIGN) && !reads("amqp.shop.other") && !reads("amqp.shop.secretq.dead"));
    // A name that the topic's cannot hold needs a permission for all names.
    let long = base::queue_topics::escaped_topic_name("shop", &"q".repeat(250));
    assert!(!reads(&long) && shop.allows(Action::Write, Resource::Topic, &long));
}

#[test]
fn allow_rule_covers_another_vhosts_topic_only_by_its_full_name() {
    use Verdict::{Allow, Deny};
    let reads = |rule: Rule| {
        let rights = rights(vec![rule], None);
        rights.allows(Action::Read, Resource::Topic, FOREIGN)
    };
    let read = |pattern, name| rule(Allow, Action::Read, pattern, name);
    assert!(reads(read(Pattern::Literal, FOREIGN)));
    assert!(reads(read(Pattern::Prefixed, "amqp.shop.")));
    assert!(reads(read(Pattern::Prefixed, "amqp.")));
    assert!(!reads(read(Pattern::Literal, "*")));
    assert!(!reads(read(Pattern::Prefixed, "a")));
    assert!(!reads(read(Pattern::Prefixed, "amqp.shopping.")));
    let cluster = Rule {
        resource: Resource::Cluster,
        ..rule(Allow, Action::Create, Pattern::Literal, CLUSTER)
    };
    let creates = rights(vec![cluster], None);
    assert!(creates.creates_topic("", "t") && !creates.creates_topic("", FOREIGN));
    // A denial holds for all names.
    let denied = rule(Deny, Action::Any, Pattern::Literal, "*");
    assert!(!tenant(&["shop"], vec![denied]).allows(Action::Read, Resource::Topic, FOREIGN));
}

#[test]
fn default_vhost_opens_only_with_a_read_or_write_rule() {
    let opens = |action, pattern, name| {
        rights(vec![rule(Verdict::Allow, action, pattern, name)], None).opens("/")
    };
    assert!(
        opens(Action::Read, Pattern::Literal, "q") && opens(Action::Any, Pattern::Literal, "*")
    );
    assert!(!opens(Action::DescribeConfigs, Pattern::Literal, "q"));
    assert!(!opens(Action::Read, Pattern::Literal, FOREIGN));
    assert!(!opens(Action::Read, Pattern::Prefixed, "amqp.shop."));
}

#[test]
fn seek_needs_the_right_to_delete_records() {
    let of_topic = |action| rule(Verdict::Allow, action, Pattern::Literal, "t");
    let of_group = Rule { resource: Resource::Group, ..of_topic(Action::Read) };
    let of_group = Rule { name: "g".to_owned(), ..of_group };
    for group in [MAIN_LEASE_GROUP, "g"] {
        let target = AccessTarget::Group { topic: "t", group };
        let reads = rights(vec![of_topic(Action::Read), of_group.clone()], None);
        assert!(reads.may(Operation::Consume, target) && !reads.may(Operation::Seek, target));
        let deletes = rights(vec![of_topic(Action::Delete), of_group.clone()], None);
        assert!(deletes.may(Operation::Seek, target));
    }
    let main = AccessTarget::Group { topic: "t", group: MAIN_LEASE_GROUP };
    assert!(!rights(Vec::new(), Some(["", "", "^t$"])).may(Operation::Seek, main));
    assert!(rights(Vec::new(), Some(["^t$", "", ""])).may(Operation::Seek, main));
}
