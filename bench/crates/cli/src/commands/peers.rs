use std::process::ExitCode;

use ::peers::{Peers, Running, State};

use crate::arguments::{Output, PeersAction, PeersArguments};
use crate::failure::CliError;
use crate::fleet::Telling;
use crate::table;

pub(crate) async fn run(arguments: PeersArguments) -> Result<ExitCode, CliError> {
    let peers = arguments.place.open()?;
    let done = tokio::task::spawn_blocking(move || act(&peers, arguments.action));
    done.await.map_err(CliError::user)??;
    Ok(ExitCode::SUCCESS)
}

fn act(peers: &Peers, action: PeersAction) -> Result<(), CliError> {
    match action {
        PeersAction::Up { names, tier, nodes } => {
            for name in names {
                peers.install(&name, &Telling).map_err(CliError::user)?;
                let running = peers.start(&name, tier, nodes, &Telling).map_err(CliError::user)?;
                for endpoint in &running.endpoints {
                    println!("{name} {} {}", endpoint.protocol, endpoint.address);
                }
            }
        }
        PeersAction::Down { names } => {
            let running = peers.running().into_iter().map(|running| running.name);
            let names = if names.is_empty() { running.collect() } else { names };
            for name in names {
                peers.stop(&name).map_err(CliError::user)?;
                println!("{name} stopped");
            }
        }
        PeersAction::Status { output: Output::Table } => {
            let rows: Vec<Vec<String>> = peers.states().iter().map(row).collect();
            print!("{}", table::render(&["peer", "version", "from", "installed", "runs"], &rows));
        }
        PeersAction::Status { output: Output::Json } => {
            let states = peers.states();
            let running: Vec<&Running> =
                states.iter().filter_map(|state| state.running.as_ref()).collect();
            let text = serde_json::to_string_pretty(&running).map_err(CliError::user)?;
            println!("{text}");
        }
        PeersAction::Wipe { names } => {
            for name in names {
                peers.wipe(&name).map_err(CliError::user)?;
                println!("{name}: data, configuration and logs are gone");
            }
        }
    }
    Ok(())
}

fn row(state: &State) -> Vec<String> {
    let runs = state.running.as_ref().map(|running| {
        let places = running.endpoints.iter().map(|it| format!("{} {}", it.protocol, it.address));
        format!("{}: {}", running.tier, places.collect::<Vec<_>>().join(", "))
    });
    vec![
        state.peer.name.to_owned(),
        state.peer.version.to_owned(),
        state.peer.source.to_string(),
        if state.installed.is_some() { "yes" } else { "no" }.to_owned(),
        runs.unwrap_or_else(|| "no".to_owned()),
    ]
}
