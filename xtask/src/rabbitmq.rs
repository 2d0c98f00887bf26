//! RabbitMQ as a peer: a newer Debian with its package in a folder, so that nothing of this machine
//! is changed, or else the package that is installed already.
//!
//! It runs in its own namespaces of processes and mounts. Its helpers and the port mapper that it
//! leaves behind then die with it, and no mount outlives it in a folder that somebody deletes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client_amqp::Mode;
use client_amqp::blocking::Connection;

use crate::bench::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::server::{self, Ending, Server};

/// RabbitMQ 4.0; Debian 12 has 3.10.
const RELEASE: &str = "trixie";
const PROGRAM: &str = "usr/lib/rabbitmq/bin/rabbitmq-server";
/// Where the data folder is seen inside.
const INSIDE: &str = "/mnt";
/// $1: the system's root, $2: the data folder. What is mounted is seen by nobody else.
const ENTER: &str = r#"
set -e
mount --bind "$2" "$1/mnt"
mount -t proc proc "$1/proc"
[ "$1" = / ] || mount --bind /dev "$1/dev"
exec chroot "$1" /usr/lib/rabbitmq/bin/rabbitmq-server
"#;
const STARTS_WITHIN: Duration = Duration::from_secs(90);

/// An installed RabbitMQ.
#[derive(Debug)]
pub(crate) struct RabbitMq {
    /// Of the system that it is installed in: `/` or a folder.
    root: PathBuf,
    pub(crate) version: String,
}

impl RabbitMq {
    /// Installs it below `peers` unless it is there, which only root can; else takes what this
    /// machine has.
    pub(crate) fn install(peers: &Path) -> Outcome<RabbitMq> {
        let folder = peers.join("rabbitmq/root");
        let outcome = match folder.join(PROGRAM).exists() {
            true => Ok(()),
            false => bootstrap(&folder),
        };
        let root = match outcome {
            Ok(()) => folder,
            Err(_) if Path::new("/").join(PROGRAM).exists() => PathBuf::from("/"),
            Err(failure) => return Err(failure),
        };
        let version = version(&root)?;
        Ok(RabbitMq { root, version })
    }

    /// Sets policies and users: the words of `tests/compat/servers/postroad-admin`.
    pub(crate) fn administer(&self, server: &Server, words: &[String]) -> Outcome {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let arguments = match words[..] {
            ["vhost", name] => vec!["add_vhost", name],
            ["no-vhost", name] => vec!["delete_vhost", name],
            ["policy", vhost, name, pattern, apply_to, definition] => {
                vec!["set_policy", "-p", vhost, "--apply-to", apply_to, name, pattern, definition]
            }
            ["no-policy", vhost, name] => vec!["clear_policy", "-p", vhost, name],
            ["user", name, password] => vec!["add_user", name, password],
            ["no-user", name] => vec!["delete_user", name],
            ["allow", name, vhost, configure, write, read] => {
                vec!["set_permissions", "-p", vhost, name, configure, write, read]
            }
            _ => return Err(Failure::new(format!("what is {words:?}?"))),
        };
        // Where the server lives, with its environment.
        let pid = server.pid().to_string();
        let environment = fs::read(format!("/proc/{pid}/environ"))?;
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let mut command = Command::new("nsenter");
        command.env_clear().envs(environment.split('\0').filter_map(|pair| pair.split_once('=')));
        command.args(["--target", &pid, "--mount", "chroot"]).arg(&self.root);
        command.arg("/usr/lib/rabbitmq/bin/rabbitmqctl").args(arguments);
        output_of(command, "rabbitmqctl").map(drop)
    }

    /// Starts an empty server whose data lies in `folder`, and waits until it serves.
    pub(crate) fn start(&self, folder: &Path) -> Outcome<Server> {
        let address = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
        let settings = format!(
            "listeners.tcp.1 = {address}\n\
             vm_memory_high_watermark.absolute = 4GB\n\
             disk_free_limit.absolute = 1GB\n"
        );
        fs::write(folder.join("rabbitmq.conf"), settings)?;
        fs::write(folder.join("enabled_plugins"), "[].")?;
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--pid", "--mount", "--fork", "--kill-child"]);
        command.args(["sh", "-c", ENTER, "sh"]).arg(&self.root).arg(folder);
        environment(&mut command)?;
        let log = folder.join("server.log");
        let mut server =
            Server::spawn("rabbitmq", command, address, log.clone(), false)?.ending(Ending::Kill);
        let begun = Instant::now();
        while begun.elapsed() < STARTS_WITHIN {
            server.still_runs()?;
            if Connection::open(address, Duration::from_secs(5), Mode::Confirms).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(Failure::new(format!("rabbitmq did not serve within {STARTS_WITHIN:?}"))
            .remedy(format!("read {}", log.display())))
    }
}

/// Only what is named: a setting of some other RabbitMQ on this machine must not get in.
fn environment(command: &mut Command) -> Outcome {
    command.env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8").env("HOME", INSIDE);
    command.env("RABBITMQ_NODENAME", "rabbit@localhost");
    command.env("RABBITMQ_CONFIG_FILE", format!("{INSIDE}/rabbitmq"));
    command.env("RABBITMQ_ENABLED_PLUGINS_FILE", format!("{INSIDE}/enabled_plugins"));
    command.env("RABBITMQ_MNESIA_BASE", format!("{INSIDE}/data"));
    command.env("RABBITMQ_LOG_BASE", format!("{INSIDE}/log"));
    command.env("RABBITMQ_DIST_PORT", server::free_port()?.to_string());
    command.env("ERL_EPMD_PORT", server::free_port()?.to_string());
    command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
    // The script then becomes the virtual machine instead of waiting for it; and still no console.
    command.env("RABBITMQ_ALLOW_INPUT", "1");
    command.env(
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
        "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
    );
    Ok(())
}

/// Makes a small Debian with RabbitMQ in a folder.
fn bootstrap(folder: &Path) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("only root can make a Debian in a folder")
            .remedy("run it as root, or apt-get install rabbitmq-server"));
    }
    // What an interrupted attempt left would be taken for an installed one.
    let unfinished = folder.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    fs::create_dir_all(&unfinished)
        .context(|| format!("cannot create {}", unfinished.display()))?;
    eprintln!("installing RabbitMQ (Debian {RELEASE} in a folder, about two minutes)");
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include=rabbitmq-server", RELEASE]).arg(&unfinished);
    output_of(debootstrap, "debootstrap").map_err(|failure| {
        failure.remedy("apt-get install debootstrap, or apt-get install rabbitmq-server")
    })?;
    fs::rename(&unfinished, folder).context(|| format!("cannot create {}", folder.display()))
}

/// The one library folder of the server that carries its version in its name.
fn version(root: &Path) -> Outcome<String> {
    let library = root.join("usr/lib/rabbitmq/lib");
    let servers =
        fs::read_dir(&library).context(|| format!("cannot read {}", library.display()))?;
    let names = servers.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let version = |name: String| name.strip_prefix("rabbitmq_server-").map(str::to_owned);
    names.filter_map(version).next().ok_or_else(|| {
        Failure::new(format!("{} holds no rabbitmq_server-VERSION", library.display()))
    })
}
