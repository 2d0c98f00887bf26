//! Runs the conformance test, always on the broker in memory, and on real servers that
//! `POSTROAD_BENCH_ENDPOINTS` names: `kafka=127.0.0.1:9092,redis=user:password@127.0.0.1:6379`.
//! Settings follow after `?`: `kafka=127.0.0.1:9092?window=10&acks=all`.

use driver::Target;
use drivers::conformance;

async fn conforms(target: &Target) -> Result<(), String> {
    println!("{} at {:?}", target.system, target.endpoints);
    let result = conformance::run(target, None, |check| println!("  {check}")).await;
    let result = result.map_err(|failure| format!("{}: {failure}", target.system))?;
    let (passed, skipped, failed) = result.counts();
    println!("  {} {}: {passed} passed, {skipped} skipped", result.title, result.version);
    if failed > 0 { Err(format!("{}: {failed} checks failed", target.system)) } else { Ok(()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_broker_conforms() {
    let mut target = Target::of("memory");
    target.endpoints.push("memory://conformance".into());
    conforms(&target).await.expect("conforms");
}

#[tokio::test(flavor = "multi_thread")]
async fn named_servers_conform() {
    let Ok(named) = std::env::var("POSTROAD_BENCH_ENDPOINTS") else { return };
    let mut failures = Vec::new();
    for entry in named.split(',').filter(|entry| !entry.is_empty()) {
        failures.extend(conforms(&parsed(entry)).await.err());
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// `system=[user:password@]endpoint[?setting=value&...]`
fn parsed(entry: &str) -> Target {
    let (system, rest) = entry.split_once('=').expect("system=endpoint");
    let mut target = Target::of(system);
    let (place, settings) = rest.split_once('?').unwrap_or((rest, ""));
    for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
        let (name, value) = setting.split_once('=').expect("setting=value");
        target.settings.insert(name.into(), value.into());
    }
    let endpoint = match place.rsplit_once('@') {
        Some((user, endpoint)) => {
            let (user, password) = user.split_once(':').expect("user:password");
            target.user = Some(user.into());
            target.password = Some(password.into());
            endpoint
        }
        None => place,
    };
    target.endpoints.push(endpoint.into());
    target
}
