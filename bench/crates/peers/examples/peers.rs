//! Manages peers by hand: `peers up kafka --tier T3`, `peers down kafka`, `peers status`.

use std::path::Path;
use std::time::Instant;

use peers::{Peers, Tier};

fn main() {
    if let Err(failure) = act() {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}

fn act() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).cloned()
    };
    let number = |name| option(name).and_then(|text: String| text.parse::<u32>().ok()).unwrap_or(1);
    let dir = option("--dir").unwrap_or_else(|| "target/peers".to_owned());
    let mut peers = Peers::open(Path::new(&dir)).map_err(|failure| failure.to_string())?;
    if let Some(binary) = option("--postroad") {
        peers = peers.with_postroad(binary.into());
    }
    let word = arguments.first().map(String::as_str).unwrap_or("status");
    let names = arguments.iter().skip(1).take_while(|argument| !argument.starts_with("--"));
    let _lock = if word == "status" { None } else { Some(peers.lock().map_err(one_line)?) };
    if word == "status" {
        status(&peers);
    }
    for name in names {
        let begun = Instant::now();
        match word {
            "install" => drop(peers.install(name, &say).map_err(|failure| failure.with_details())?),
            "up" => {
                peers.install(name, &say).map_err(|failure| failure.with_details())?;
                let tier = option("--tier").unwrap_or_else(|| "T3".to_owned()).parse::<Tier>()?;
                let running = peers.start(name, tier, number("--nodes"), &say);
                println!("{:#?}", running.map_err(|failure| failure.with_details())?);
            }
            "down" => peers.stop(name).map_err(one_line)?,
            "kill" => drop(peers.kill(name, number("--node")).map_err(one_line)?),
            "restart" => drop(
                peers.restart(name, number("--node")).map_err(|failure| failure.with_details())?,
            ),
            "wipe" => peers.wipe(name).map_err(one_line)?,
            other => {
                return Err(format!(
                    "{other}: there are status, install, up, down, kill, restart, wipe"
                ));
            }
        }
        say(name, &format!("{word}: {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(())
}

fn say(peer: &str, what: &str) {
    eprintln!("{peer}: {what}");
}

fn one_line(failure: impl std::fmt::Display) -> String {
    failure.to_string()
}

fn status(peers: &Peers) {
    for state in peers.states() {
        let installed = match &state.installed {
            Some(marker) => {
                format!("{} ({} MB, {} s)", marker.version, marker.bytes >> 20, marker.took_seconds)
            }
            None => "-".to_owned(),
        };
        let running = match &state.running {
            Some(running) => {
                let of = |process: &peers::Process| peers::resident_bytes(&process.identity);
                let bytes: u64 = running.processes.iter().map(of).sum();
                format!("{} on {} node(s), {} MB", running.tier, running.live_nodes(), bytes >> 20)
            }
            None => "-".to_owned(),
        };
        println!("{:12} {:28} {running}", state.peer.name, installed);
    }
}
