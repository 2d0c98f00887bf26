//! Writes reports of invented runs for review: `sample FOLDER`.

mod invented;

use std::path::Path;
use std::{env, fs, io};

use results::Latency;

fn main() -> io::Result<()> {
    let folder = env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    for (name, runs) in [("sample", invented::suite()), ("sample-wide", invented::many(20))] {
        let page = report::html(&runs)
            .replace("Message brokers, measured", "SAMPLE: invented, not measured");
        fs::write(folder.join(format!("{name}.html")), page)?;
        fs::write(folder.join(format!("{name}.md")), report::markdown(&runs))?;
    }
    fs::write(folder.join("sample-compare.txt"), compared().terminal())?;
    fs::write(folder.join("sample-compare.md"), compared().markdown())?;
    fs::write(folder.join("sample.prom"), live().exposition())
}

/// A newer version that is a little faster and uses more memory.
fn compared() -> report::Comparison {
    let of = |seeds: std::ops::RangeInclusive<u64>, factor: f64| -> Vec<results::Run> {
        let run =
            |seed| invented::seeded_run("mqperf/mid", &invented::KINDS[0], seed, factor, None);
        seeds.map(run).collect()
    };
    let before = of(1..=3, 0.5);
    let mut after = of(4..=6, 0.54);
    for run in &mut after {
        run.system.version = "1.1.0".to_owned();
        for usage in run.processes.iter_mut().flat_map(|process| &mut process.usage) {
            usage.resident_bytes += 40 << 20;
        }
    }
    report::compare(&before, &after)
}

fn live() -> report::prometheus::Live {
    let live = report::prometheus::Live::new("mqperf/base", "SAMPLE", "nowhere");
    let (mut send, mut receive) = (Latency::default(), Latency::default());
    for step in 0..10_000 {
        send.record_us(300 + step % 2_000);
        receive.record_us(500 + step % 90_000);
    }
    live.sent(send.count());
    live.confirmed(send.count());
    live.send_latencies(&send);
    live.received(receive.count());
    live.receive_latencies(&receive);
    live
}
