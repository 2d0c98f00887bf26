//! `postroad tls`: a certificate for trying out encryption.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use jiff::{Timestamp, ToSpan};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::output::OutputOption;

#[derive(Args, Debug)]
pub struct TlsArguments {
    #[command(subcommand)]
    command: TlsCommand,
}

#[derive(Subcommand, Debug)]
enum TlsCommand {
    SelfSigned(SelfSigned),
}

/// Create a self-signed certificate and its key
///
/// To try encryption with: clients are given the certificate itself as the authority that they believe. The files are
/// cert.pem and key.pem, and none that is there is replaced.
#[derive(Args, Debug)]
struct SelfSigned {
    /// Name or address that clients connect to, besides localhost, 127.0.0.1 and ::1; may be given several times
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Days that it lasts
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Folder for the files; it is made if it is missing
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputOption,
}

const OF_THIS_MACHINE: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[derive(Serialize)]
struct CreatedCertificate {
    cert: PathBuf,
    key: PathBuf,
    names: Vec<String>,
    days: u16,
}

pub(crate) fn run(arguments: TlsArguments) -> Result<(), CommandError> {
    let TlsCommand::SelfSigned(asked) = arguments.command;
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::user(format!("the certificate could not be made: {error}"))
    };
    let names = names(asked.names);
    let mut params = CertificateParams::new(names.clone()).map_err(|error| failed(&error))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Postroad, self-signed");
    let day = |days: i64| {
        let date =
            Timestamp::now().checked_add((days * 24).hours()).map_err(|error| failed(&error))?;
        let date = date.to_zoned(jiff::tz::TimeZone::UTC).date();
        Ok::<_, CommandError>(date_time_ymd(
            date.year().into(),
            date.month() as u8,
            date.day() as u8,
        ))
    };
    // Allows for clocks that differ.
    (params.not_before, params.not_after) = (day(-1)?, day(i64::from(asked.days) + 1)?);
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let certificate = params.self_signed(&key).map_err(|error| failed(&error))?;
    let made = CreatedCertificate {
        cert: asked.dir.join("cert.pem"),
        key: asked.dir.join("key.pem"),
        names,
        days: asked.days,
    };
    std::fs::create_dir_all(&asked.dir).map_err(|error| {
        CommandError::user(format!("{} cannot be made: {error}", asked.dir.display()))
    })?;
    write(&made.key, 0o600, &key.serialize_pem())?;
    write(&made.cert, 0o644, &certificate.pem())?;
    asked
        .output
        .output
        .show(&made, |made| format!("made {} and {}\n", made.cert.display(), made.key.display()))?;
    Ok(())
}

/// This machine's names come first: a local node advertises them unless it has other settings.
fn names(given: Vec<String>) -> Vec<String> {
    let mut names = OF_THIS_MACHINE.map(str::to_owned).to_vec();
    for name in given {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), CommandError> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().map_err(|error| {
        CommandError::user(format!("{} cannot be written: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_for_a_name_is_good_for_this_machine_too() {
        let names = names(["broker.internal", "localhost"].map(str::to_owned).to_vec());
        assert_eq!(names, ["localhost", "127.0.0.1", "::1", "broker.internal"]);
    }
}
