//! One act of each nemesis.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Nemesis;
use crate::failure::{Context, Failure, Outcome};
use crate::random::Random;
use crate::soak::faults::site::{FOUNDERS, Site};

const FOURTH: usize = 3;
/// Longer than the propagation of an epoch that an image lacks.
const EPOCH_MOVED: Duration = Duration::from_secs(3);
const DECIDED_WITHIN: Duration = Duration::from_secs(60);

/// Injects one fault and, unless its kind lasts, ends it. False: this kind is injected once in a run.
pub(super) fn act(nemesis: Nemesis, site: &mut Site, random: &mut Random) -> Outcome<bool> {
    let victim = random.between(0, FOUNDERS as u64 - 1) as usize;
    let others: Vec<usize> = (0..FOUNDERS).filter(|place| *place != victim).collect();
    let lasts = |random: &mut Random| {
        sleep(random.duration(Duration::from_secs(3), Duration::from_secs(6)));
    };
    match nemesis {
        Nemesis::None => sleep(Duration::from_secs(1)),
        Nemesis::KillOne => {
            site.kill(victim)?;
            sleep(random.duration(Duration::ZERO, Duration::from_secs(2)));
            site.start(victim)?;
        }
        Nemesis::KillAll => {
            (0..FOUNDERS).try_for_each(|place| site.kill(place))?;
            site.start_all(&[0, 1, 2])?;
        }
        Nemesis::Rolling => {
            for place in 0..FOUNDERS {
                site.terminate(place)?;
                site.start(place)?;
                sleep(Duration::from_millis(500));
            }
        }
        Nemesis::Pause => {
            site.pause(victim)?;
            sleep(Duration::from_secs(3));
            site.resume(victim)?;
        }
        Nemesis::CutLeader => {
            let leader = leader(site, random)?;
            (0..FOUNDERS).filter(|it| *it != leader).for_each(|it| site.mesh.cut_both(leader, it));
            lasts(random);
            site.mesh.heal();
        }
        Nemesis::CutOneWay => {
            let leader = leader(site, random)?;
            (0..FOUNDERS).filter(|it| *it != leader).for_each(|it| site.mesh.cut(it, leader));
            lasts(random);
            site.mesh.heal();
        }
        Nemesis::CutRing => {
            site.mesh.cut_both(others[0], others[1]);
            lasts(random);
            site.mesh.heal();
        }
        Nemesis::Lossy => {
            site.mesh.disturb(victim, 20, 50);
            lasts(random);
            site.mesh.heal();
        }
        Nemesis::SlowLink => {
            site.mesh.disturb(victim, 300, 0);
            lasts(random);
            site.mesh.heal();
        }
        Nemesis::FullDisk => {
            site.inject(victim, "disk full\n")?;
            lasts(random);
            site.inject(victim, "")?;
        }
        Nemesis::HungDisk => {
            site.inject(victim, "disk hang\n")?;
            lasts(random);
            site.inject(victim, "")?;
            // A node may end after its disk hung for long.
            if site.has_ended(victim) {
                site.start(victim)?;
            }
        }
        Nemesis::SlowDisk => {
            site.inject(victim, "disk slow 100\n")?;
            lasts(random);
            site.inject(victim, "")?;
        }
        Nemesis::Clock => {
            let by = random.between(0, 7_200_000) as i64 - 3_600_000;
            site.inject(victim, &format!("clock {by}\n"))?;
            lasts(random);
            site.inject(victim, "")?;
        }
        Nemesis::Wipe => return replace(site, victim).map(|()| false),
        Nemesis::Copy => return copied(site, victim).map(|()| false),
        Nemesis::RollBack => return roll_back(site, random, false).map(|()| false),
        Nemesis::RollBackQuiet => return roll_back(site, random, true).map(|()| false),
        Nemesis::Flip => return flip(site, victim, random).map(|()| false),
        Nemesis::Members => return members(site).map(|()| false),
        Nemesis::Moves => moves(site, random)?,
        Nemesis::Backup => {
            let to = site.folder().join(format!("backup-{}", random.next()));
            let (asked, killed) = (site.postroad(others[0]).clone(), others[1]);
            let backup = to.display().to_string();
            let taking = std::thread::spawn(move || asked.run_command(&["backup", &backup]));
            sleep(random.duration(Duration::ZERO, Duration::from_millis(500)));
            site.kill(killed)?;
            sleep(Duration::from_secs(1));
            site.start(killed)?;
            // A backup may fail during a kill, but it must not harm the cluster.
            let _ = taking.join().map_err(|_| Failure::new("the backup panicked"))?;
            let _ = fs::remove_dir_all(&to);
        }
    }
    Ok(true)
}

/// The leader of any shard.
fn leader(site: &Site, random: &mut Random) -> Outcome<usize> {
    let status = site.status(0)?;
    let shards = status["shards"].as_array().map_or(&[][..], Vec::as_slice);
    let led: Vec<usize> = shards
        .iter()
        .filter_map(|shard| shard["leader"].as_u64()?.checked_sub(1)?.try_into().ok())
        .filter(|place| *place < FOUNDERS)
        .collect();
    let any = led.get(random.between(0, led.len().max(1) as u64 - 1) as usize);
    any.copied().ok_or_else(|| Failure::new("no shard has a leader"))
}

/// Waits until a node's status meets a condition.
fn wait_for(
    site: &Site,
    place: usize,
    what: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> Outcome {
    let deadline = Instant::now() + DECIDED_WITHIN;
    loop {
        let status = site.status(place);
        if status.as_ref().is_ok_and(&is_so) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let why = status.map_or_else(|error| error.to_string(), |it| it.to_string());
            return Err(Failure::new(format!(
                "{what} did not come about in {DECIDED_WITHIN:?}: {why}"
            )));
        }
        sleep(Duration::from_millis(500));
    }
}

fn node_of(status: &serde_json::Value, number: usize) -> Option<&serde_json::Value> {
    status["nodes"].as_array()?.iter().find(|node| node["node"] == number)
}

/// Loses the node at this place with its directory. A node with an empty directory joins and replaces it.
fn replace(site: &mut Site, victim: usize) -> Outcome {
    let asked = (victim + 1) % FOUNDERS;
    let before = numbers(&site.status(asked)?);
    site.kill(victim)?;
    site.wipe(victim)?;
    site.joins(victim);
    site.start_without_waiting(victim)?;
    wait_for(site, asked, "a new node", |status| {
        numbers(status).iter().any(|number| !before.contains(number))
    })?;
    let status = site.status(asked)?;
    let new = numbers(&status).into_iter().find(|number| !before.contains(number));
    let new = new.ok_or_else(|| Failure::new("no new node"))?.to_string();
    let old = (victim + 1).to_string();
    site.postroad(asked).run_command(&["node", "replace", &old, "--with", &new])?;
    wait_for(site, asked, "the replacement", |status| node_of(status, victim + 1).is_none())
}

fn numbers(status: &serde_json::Value) -> Vec<u64> {
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    nodes.iter().filter_map(|node| node["node"].as_u64()).collect()
}

/// Starts a copy of a running node's directory, which the cluster must reject.
fn copied(site: &mut Site, victim: usize) -> Outcome {
    site.pause(victim)?;
    let image = site.image(victim, "copy")?;
    site.resume(victim)?;
    site.restore(FOURTH, &image)?;
    site.start_without_waiting(FOURTH)?;
    sleep(EPOCH_MOVED);
    // The rejected copy has ended or waits; the original node must still run.
    site.kill(FOURTH)?;
    let status = site.status((victim + 1) % FOUNDERS)?;
    match node_of(&status, victim + 1).and_then(|node| node["live"].as_bool()) {
        Some(true) => Ok(()),
        _ => Err(Failure::new(format!("node {} is not live beside its copy", victim + 1))),
    }
}

/// Restores an image of a running node. `quiet`: the others run; else the only node with the missing entries is
/// away.
fn roll_back(site: &mut Site, random: &mut Random, quiet: bool) -> Outcome {
    let rolled = random.between(0, FOUNDERS as u64 - 1) as usize;
    let (knows, away) = ((rolled + 1) % FOUNDERS, (rolled + 2) % FOUNDERS);
    site.pause(rolled)?;
    let image = site.image(rolled, "image")?;
    site.resume(rolled)?;
    sleep(EPOCH_MOVED);
    if !quiet {
        site.mesh.cut_both(away, rolled);
        site.mesh.cut_both(away, knows);
        sleep(EPOCH_MOVED);
    }
    site.kill(rolled)?;
    if !quiet {
        site.kill(knows)?;
        site.mesh.heal();
    }
    site.restore(rolled, &image)?;
    site.start_without_waiting(rolled)?;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !site.has_ended(rolled) {
        if Instant::now() > deadline {
            return Err(Failure::new(format!(
                "VIOLATION: node {}, whose directory was set back, was let in",
                rolled + 1
            )));
        }
        sleep(Duration::from_millis(200));
    }
    if !quiet {
        site.start(knows)?;
    }
    let asked = if quiet { knows } else { away };
    let number = rolled + 1;
    wait_for(site, asked, "the word of the refused node", |status| {
        let at_risk = status["at_risk"].as_array().map_or(&[][..], Vec::as_slice);
        let word = format!("node {number} ");
        at_risk.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(&word)))
    })?;
    replace(site, rolled)
}

/// Flips bits in the last segment of each shard of a running node, which a scrub has to find and repair.
fn flip(site: &mut Site, victim: usize, random: &mut Random) -> Outcome {
    let mut flipped = 0;
    for shard in fs::read_dir(site.data(victim))?.flatten().map(|entry| entry.path()) {
        let is_shard =
            shard.file_name().and_then(|it| it.to_str()).is_some_and(|it| it.starts_with("shard-"));
        if !is_shard {
            continue;
        }
        let files = fs::read_dir(&shard)?.flatten().map(|entry| entry.path());
        let mut segments: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect();
        segments.sort();
        for segment in &segments {
            flipped += u64::from(flip_one(segment, random)?);
        }
    }
    if flipped == 0 {
        return Err(Failure::new("no segment has anything in it"));
    }
    site.postroad(victim).run_command(&["node", "scrub"])?;
    wait_for(site, victim, "a scrub and its repairs", |status| {
        let stored = status["stored"].as_array().map_or(&[][..], Vec::as_slice);
        let stored = stored.iter().find(|it| it["node"] == victim + 1);
        stored.is_some_and(|it| {
            let idle = it["looked_at_bytes"].is_null() && it["ended_ms"].is_i64();
            idle && it["damaged"].as_array().is_none_or(Vec::is_empty)
        })
    })
}

/// Flips a bit in the middle of a file's written part. False: the file has too little.
fn flip_one(path: &PathBuf, random: &mut Random) -> Outcome<bool> {
    let content = fs::read(path).context(|| format!("cannot read {}", path.display()))?;
    let Some(used) = content.iter().rposition(|byte| *byte != 0).filter(|used| *used > 2_000)
    else {
        return Ok(false);
    };
    let mut at = random.between(used as u64 / 4, used as u64 / 2);
    while content[at as usize] == 0 {
        at += 1;
    }
    let file = File::options().write(true).open(path)?;
    file.write_all_at(&[content[at as usize] ^ 1 << random.between(0, 7)], at)?;
    file.sync_all()?;
    Ok(true)
}

fn members(site: &mut Site) -> Outcome {
    let before = numbers(&site.status(0)?);
    site.wipe(FOURTH)?;
    site.start(FOURTH)?;
    wait_for(site, 0, "a fourth node", |status| numbers(status).len() > before.len())?;
    let status = site.status(0)?;
    let new = numbers(&status).into_iter().find(|number| !before.contains(number));
    let new = new.ok_or_else(|| Failure::new("no new node"))?;
    let number = new.to_string();
    sleep(Duration::from_secs(2));
    site.postroad(0).run_command(&["node", "drain", &number])?;
    sleep(Duration::from_secs(2));
    site.postroad(0).run_command(&["node", "remove", &number])?;
    wait_for(site, 0, "the removal of the fourth node", |status| !numbers(status).contains(&new))?;
    // A removed node ends by itself; it may take a moment.
    site.kill(FOURTH)
}

fn moves(site: &Site, random: &mut Random) -> Outcome {
    let status = site.status(0)?;
    let shards = status["shards"].as_array().map_or(0, Vec::len) as u64;
    if shards < 3 {
        return Err(Failure::new("topics move where there are two shards of records"));
    }
    let to = random.between(1, shards - 1).to_string();
    let partition = random.between(0, 3).to_string();
    // A move to the current shard, or during another move, is rejected.
    let words = ["topic", "move", "append", "--partitions", &partition, "--to-shard", &to];
    let _ = site.postroad(0).run_command(&words);
    sleep(Duration::from_secs(2));
    Ok(())
}
