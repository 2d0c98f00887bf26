//! `cargo xtask console`: builds the console from its sources, compares it with the committed files, and tests it
//! in a real browser against the real binary. Installs its dependencies: packages by `npm ci`, and the
//! distribution's Chromium.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::command::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::paths;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The server's binary [default: a debug build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Take pictures of each page into this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Rebuild console/dist instead of comparing it
    #[arg(long)]
    write: bool,
}

const BROWSERS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

pub(crate) fn run(options: &Options) -> Outcome {
    let folder = prepared()?;
    step(&folder, "npm", &["run", "--silent", "check"])?;
    step(&folder, "npm", &["run", "--silent", "build"])?;
    if !options.write {
        let mut git = Command::new("git");
        git.current_dir(&folder).args(["diff", "--exit-code", "--stat", "--", "dist"]);
        output_of(git, "git diff").map_err(|failure| {
            failure.remedy("commit console/dist as it is made now: it is what the binary has")
        })?;
    }
    let browser = browser()?;
    let binary = match &options.bin {
        Some(binary) => binary.clone(),
        None => built()?,
    };
    let mut test = Command::new("node");
    test.current_dir(&folder).arg("test/run.mjs").arg(&binary).arg(&browser);
    if let Some(pictures) = &options.pictures {
        test.arg(std::path::absolute(pictures).context(|| "a folder for pictures".to_owned())?);
    }
    let status = test.stdin(Stdio::null()).status().context(|| "cannot run node".to_owned())?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!("the console's tests ended with {status}"))),
    }
}

/// The step of CI. Reports that it is skipped if there is no browser.
pub(crate) fn in_ci(server: PathBuf) -> Outcome {
    if let Err(failure) = browser() {
        println!("skipped: {failure}");
        return Ok(());
    }
    run(&Options { bin: Some(server), pictures: None, write: false })
}

/// The console's folder, with the packages that its tests need.
pub(crate) fn prepared() -> Outcome<PathBuf> {
    let folder = paths::root().join("console");
    step(&folder, "npm", &["ci", "--no-audit", "--no-fund"])?;
    Ok(folder)
}

fn step(folder: &Path, program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.current_dir(folder).args(arguments);
    let told = output_of(command, &format!("{program} {}", arguments.join(" ")));
    told.map(drop).map_err(|failure| failure.remedy("Node.js 20 or newer and npm are needed"))
}

/// The installed browser; otherwise the distribution's, which is installed.
pub(crate) fn browser() -> Outcome<PathBuf> {
    let found = || BROWSERS.iter().map(PathBuf::from).find(|path| path.exists());
    if let Some(found) = found() {
        return Ok(found);
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends", "chromium", "fonts-liberation"]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    let none = |failure: Failure| {
        failure.remedy(format!("install Chromium: one of {}", BROWSERS.join(", ")))
    };
    output_of(install, "apt-get install chromium").map_err(none)?;
    found().ok_or_else(|| none(Failure::new("there is no browser")))
}

fn built() -> Outcome<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(paths::root()).args(["build", "--locked", "-p", "postroad"]);
    output_of(cargo, "cargo build")?;
    Ok(paths::target().join("debug/postroad"))
}
