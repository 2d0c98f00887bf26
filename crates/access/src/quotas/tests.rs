//! Quotas over a broker on a simulated disk: selection, persistence and waits.

use std::net::Ipv4Addr;
use std::path::Path;

use access_rules::OPERATOR;
use access_rules::quota::EntityType;
use broker::BrokerOptions;
use world::{SimulatedDisk, World};

use super::*;

async fn open_on(disk: &SimulatedDisk) -> (Broker, Quotas) {
    let world = World::on(Arc::new(disk.clone()));
    let broker = Broker::open(world, Path::new("/data"), BrokerOptions::default()).await;
    let broker = broker.expect("the broker opens");
    let quotas = Quotas::open(broker.clone()).expect("quotas are read");
    (broker, quotas)
}

fn entity(user: Option<Option<&str>>, client: Option<Option<&str>>) -> Entity {
    let part = |of, name: Option<Option<&str>>| name.map(|name| (of, name.map(str::to_owned)));
    let parts = [part(EntityType::User, user), part(EntityType::ClientId, client)];
    Entity::of(parts.into_iter().flatten())
}

fn set(entity: Entity, quota: Quota, value: f64) -> Alteration {
    Alteration { entity, values: vec![(quota.word().to_owned(), Some(value))] }
}

fn address(name: Option<&str>, value: f64) -> Alteration {
    let entity = Entity::of([(EntityType::Address, name.map(str::to_owned))]);
    set(entity, Quota::ConnectionCreationRate, value)
}

async fn altered(quotas: &Quotas, alterations: &[Alteration]) {
    for answer in quotas.alter(alterations, false).await {
        answer.expect("is altered");
    }
}

#[tokio::test]
async fn most_specific_entity_applies_for_each_quota_separately() {
    let (_broker, quotas) = open_on(&SimulatedDisk::default()).await;
    let (default, of) = (Some(None), |name| Some(Some(name)));
    let order = [
        entity(of("ada"), of("app")),
        entity(of("ada"), default),
        entity(of("ada"), None),
        entity(default, of("app")),
        entity(default, default),
        entity(default, None),
        entity(None, of("app")),
        entity(None, default),
    ];
    let rate = |quota| Some(resolution::resolve(&quotas.table(), quota, "ada", "app")?.0);
    // From the least to the most specific: each one overrides the one before.
    for (place, entity) in order.into_iter().enumerate().rev() {
        altered(&quotas, &[set(entity, Quota::ProducerByteRate, 1.0 + place as f64)]).await;
        assert_eq!(rate(Quota::ProducerByteRate), Some(1.0 + place as f64));
    }
    assert_eq!(rate(Quota::ConsumerByteRate), None);
    altered(&quotas, &[set(entity(None, default), Quota::ConsumerByteRate, 9.0)]).await;
    assert_eq!(rate(Quota::ConsumerByteRate), Some(9.0));
    assert!(resolution::resolve(&quotas.table(), Quota::ProducerByteRate, "bob", "x").is_some());
}

#[tokio::test]
async fn quota_is_shared_by_clients_of_a_user_and_users_of_a_client() {
    let (_broker, quotas) = open_on(&SimulatedDisk::default()).await;
    let of = |name| Some(Some(name));
    let changes = [(entity(of("ada"), None), 10.0), (entity(None, Some(None)), 10.0)];
    let changes = changes.map(|(entity, rate)| set(entity, Quota::ProducerByteRate, rate));
    altered(&quotas, &changes).await;
    let meter = || Meter::new(&quotas, Protocol::Kafka);
    let quota = Quota::ProducerByteRate;
    // All clients of the user.
    assert!(!meter().charge(quota, QuotaClient::new(Some("ada"), "one"), 100).is_zero());
    assert!(!meter().debt(quota, QuotaClient::new(Some("ada"), "two")).is_zero());
    // All users of the client, and no other.
    assert!(!meter().charge(quota, QuotaClient::new(Some("bob"), "app"), 100).is_zero());
    assert!(!meter().debt(quota, QuotaClient::new(None, "app")).is_zero());
    assert!(meter().debt(quota, QuotaClient::new(None, "other")).is_zero());
    assert!(meter().debt(Quota::ConsumerByteRate, QuotaClient::new(None, "app")).is_zero());
    // The operator is exempt.
    assert!(meter().charge(quota, QuotaClient::new(Some(OPERATOR), "app"), 100).is_zero());
}

#[tokio::test]
async fn quotas_survive_a_restart_and_are_found_by_filters() {
    let disk = SimulatedDisk::default();
    let (broker, quotas) = open_on(&disk).await;
    let of = |name| Some(Some(name));
    let changes = [
        set(entity(of("ada"), None), Quota::ProducerByteRate, 10.0),
        set(entity(of("ada"), of("app")), Quota::ControllerMutationRate, 0.5),
        set(entity(Some(None), None), Quota::ConsumerByteRate, 20.0),
        address(Some("192.0.2.1"), 5.0),
    ];
    altered(&quotas, &changes).await;
    broker.shutdown().await;
    let (_broker, quotas) = open_on(&disk).await;
    let table = quotas.table();
    assert_eq!(table.len(), 4);
    let user = |matches| Component { of: EntityType::User, matches };
    let found = |components, strict| Filter { components, strict }.of(&table).count();
    assert_eq!(found(vec![], false), 4);
    assert_eq!(found(vec![], true), 0);
    assert_eq!(found(vec![user(Match::Any)], false), 3);
    assert_eq!(found(vec![user(Match::Any)], true), 2);
    assert_eq!(found(vec![user(Match::Default)], false), 1);
    assert_eq!(found(vec![user(Match::Name("ada".into()))], false), 2);
    assert_eq!(found(vec![user(Match::Name("ada".into()))], true), 1);
    // A removed quota is gone, and an entity without quotas with it.
    let gone = Alteration {
        entity: entity(of("ada"), None),
        values: vec![("producer_byte_rate".into(), None), ("request_percentage".into(), None)],
    };
    let tried = quotas.alter(std::slice::from_ref(&gone), true).await;
    assert_eq!((tried, quotas.table().len()), (vec![Ok(())], 4));
    altered(&quotas, &[gone]).await;
    assert_eq!(quotas.table().len(), 3);
}

#[tokio::test]
async fn invalid_alterations_are_rejected_and_the_others_applied() {
    let (_broker, quotas) = open_on(&SimulatedDisk::default()).await;
    let ada = || entity(Some(Some("ada")), None);
    let with_address =
        Entity::of([(EntityType::User, None), (EntityType::Address, Some("192.0.2.1".to_owned()))]);
    let raw = |key: &str, value| Alteration {
        entity: ada(),
        values: vec![(key.to_owned(), Some(value))],
    };
    let bad = [
        set(Entity::default(), Quota::ProducerByteRate, 1.0),
        set(with_address, Quota::ConnectionCreationRate, 1.0),
        set(entity(Some(Some("")), None), Quota::ProducerByteRate, 1.0),
        address(Some("localhost"), 1.0),
        set(ada(), Quota::ConnectionCreationRate, 1.0),
        set(ada(), Quota::ProducerByteRate, 0.0),
        set(ada(), Quota::ProducerByteRate, 1.5),
        set(ada(), Quota::ProducerByteRate, f64::NAN),
        raw("request_percentage", 50.0),
        raw("nothing", 1.0),
        address(None, 1e10),
    ];
    let good = set(ada(), Quota::ControllerMutationRate, 1.5);
    let all: Vec<Alteration> = bad.iter().cloned().chain([good]).collect();
    let answers = quotas.alter(&all, false).await;
    let refused = answers.iter().filter(|it| matches!(it, Err(QuotaError::Invalid(_)))).count();
    assert_eq!((refused, answers.last()), (bad.len(), Some(&Ok(()))));
    assert_eq!(quotas.table().len(), 1);
    assert_eq!(
        Quotas::default().alter(&[address(None, 1.0)], false).await,
        [Err(QuotaError::NotKept)]
    );
}

#[tokio::test(start_paused = true)]
async fn connection_rate_is_limited_per_address() {
    let (_broker, quotas) = open_on(&SimulatedDisk::default()).await;
    let from = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    assert_eq!(quotas.connects(from(1), Protocol::Amqp), Ok(()));
    altered(&quotas, &[address(None, 2.0), address(Some("192.0.2.9"), 1000.0)]).await;
    let mut took = 0;
    let wait = loop {
        match quotas.connects(from(1), Protocol::Amqp) {
            Ok(()) => took += 1,
            Err(wait) => break wait,
        }
    };
    // A second's share, and one that goes into debt.
    assert_eq!(took, 3);
    assert!(wait <= Duration::from_millis(500), "{wait:?}");
    // An IPv4-mapped address is the same address; other addresses have their own bucket.
    assert!(
        quotas
            .connects(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().into(), Protocol::Http)
            .is_err()
    );
    assert_eq!(quotas.connects(from(2), Protocol::Amqp), Ok(()));
    assert!((0..100).all(|_| quotas.connects(from(9), Protocol::Amqp).is_ok()));
    let seen = quotas.throttled();
    let of = |protocol| seen.iter().find(|it| it.protocol == protocol).expect("is counted");
    assert_eq!(of("amqp").by_quota[3].1, 1);
    assert_eq!(of("http").by_quota[3].1, 1);
}

#[tokio::test(start_paused = true)]
async fn session_in_debt_waits_until_paid_or_until_the_quota_is_removed() {
    let (_broker, quotas) = open_on(&SimulatedDisk::default()).await;
    let ada = || entity(Some(Some("ada")), None);
    altered(&quotas, &[set(ada(), Quota::ProducerByteRate, 10.0)]).await;
    let (meter, caller) = (Meter::new(&quotas, Protocol::Kafka), QuotaClient::new(Some("ada"), ""));
    meter.waited().await;
    let (begun, wait) = (Instant::now(), meter.take(Quota::ProducerByteRate, caller, 110));
    assert!(wait > Duration::from_secs(9), "{wait:?}");
    meter.waited().await;
    assert!(begun.elapsed() >= wait && !meter.waits());
    // Years of debt, until the quota is removed.
    meter.take(Quota::ProducerByteRate, caller, 1 << 40);
    let waited = async {
        meter.waited().await;
        begun.elapsed()
    };
    let changed = async {
        tokio::task::yield_now().await;
        assert_eq!(quotas.throttled()[0].waiting, 1);
        let gone = ("producer_byte_rate".to_owned(), None);
        altered(&quotas, &[Alteration { entity: ada(), values: vec![gone] }]).await;
    };
    let (elapsed, ()) = tokio::join!(waited, changed);
    assert!(elapsed < Duration::from_secs(3600), "{elapsed:?}");
    assert!(quotas.is_empty() && quotas.throttled()[0].waiting == 0);
}
