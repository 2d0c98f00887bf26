//! `cargo xtask dist`: release artifacts. A static binary that runs on any Linux, its symbols in a separate file,
//! an archive, a Debian package, and an image if a container tool is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::command::output_of;
use crate::failure::{Context, Failure, Outcome};
use crate::paths;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Take this static binary in place of building one
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Make no image, also where podman, buildah or docker is there
    #[arg(long)]
    no_image: bool,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Programs that build images from a Containerfile, in the order in which they are tried.
const IMAGE_TOOLS: [&str; 3] = ["podman", "buildah", "docker"];

/// Names of the machine's architecture.
struct Architecture {
    rust: &'static str,
    debian: &'static str,
}

fn architecture() -> Outcome<Architecture> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Architecture { rust: "x86_64", debian: "amd64" }),
        "aarch64" => Ok(Architecture { rust: "aarch64", debian: "arm64" }),
        other => Err(Failure::new(format!("nothing is made for {other}"))),
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    let architecture = architecture()?;
    let built = match &options.bin {
        Some(path) => path.clone(),
        None => build(&format!("{}-unknown-linux-musl", architecture.rust))?,
    };
    let folder = paths::fresh("dist")?;
    let name = format!("postroad-{VERSION}-linux-{}", architecture.rust);
    let binary = folder.join("postroad");
    let symbols = folder.join(format!("{name}.debug"));
    split_symbols(&built, &binary, &symbols)?;
    check_static(&binary)?;

    let mut made = vec![binary.clone(), symbols];
    made.push(archive(&folder, &name, &binary)?);
    made.push(package(&folder, &architecture, &binary)?);
    for path in &made {
        let bytes =
            fs::metadata(path).context(|| format!("cannot look at {}", path.display()))?.len();
        println!("{:>7.1} MB  {}", bytes as f64 / 1e6, path.display());
    }
    if !options.no_image {
        image(&folder, &binary)?;
    }
    Ok(())
}

fn build(target: &str) -> Outcome<PathBuf> {
    if !is_there("musl-gcc") {
        let what = Failure::new(
            "musl-gcc is not there, which the C parts of the binary are compiled with",
        );
        return Err(what.remedy("apt-get install musl-tools"));
    }
    run_step("rustup", &["target", "add", target])?;
    eprintln!("building a static binary; this takes ten minutes on two cores");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(paths::root());
    cargo.args([
        "build",
        "--profile",
        "dist",
        "--locked",
        "--package",
        "postroad",
        "--target",
        target,
    ]);
    let status = cargo.stdin(Stdio::null()).status().context(|| "cannot run cargo".to_owned())?;
    if !status.success() {
        return Err(Failure::new(format!("cargo build ended with {status}")));
    }
    Ok(paths::target().join(target).join("dist/postroad"))
}

/// Strips the binary. The symbols are in a file beside it, which the binary names.
fn split_symbols(built: &Path, binary: &Path, symbols: &Path) -> Outcome {
    let [from, to, debug] = [built, binary, symbols].map(|path| path.display().to_string());
    run_step("objcopy", &["--only-keep-debug", &from, &debug])?;
    let link = format!("--add-gnu-debuglink={debug}");
    run_step("objcopy", &["--strip-all", &link, &from, &to])
}

/// Fails if the binary needs an interpreter or a library, since it is not static then.
fn check_static(binary: &Path) -> Outcome {
    let mut readelf = Command::new("readelf");
    readelf.args(["--program-headers", "--dynamic", "--wide"]).arg(binary);
    let told = output_of(readelf, "readelf")?;
    let asks = told.lines().find(|line| line.contains("INTERP") || line.contains("(NEEDED)"));
    match asks {
        None => Ok(()),
        Some(line) => Err(Failure::new(format!("the binary is not static: {}", line.trim()))),
    }
}

fn archive(folder: &Path, name: &str, binary: &Path) -> Outcome<PathBuf> {
    let root = folder.join(name);
    let deploy = paths::root().join("deploy");
    put(binary, &root.join("postroad"), 0o755)?;
    for file in ["LICENSE", "README.md"] {
        put(&paths::root().join(file), &root.join(file), 0o644)?;
    }
    put(&deploy.join("README.md"), &root.join("deploy/README.md"), 0o644)?;
    for file in ["postroad.service", "postroad.env"] {
        put(&deploy.join("systemd").join(file), &root.join("deploy/systemd").join(file), 0o644)?;
    }
    let made = folder.join(format!("{name}.tar.gz"));
    let (made_as, folder_as) = (made.display().to_string(), folder.display().to_string());
    let owned = ["--owner=0", "--group=0", "--sort=name", "-czf"];
    run_step("tar", &[&owned[..], &[&made_as, "-C", &folder_as, name]].concat())?;
    Ok(made)
}

fn package(folder: &Path, architecture: &Architecture, binary: &Path) -> Outcome<PathBuf> {
    let root = folder.join("debian");
    let deploy = paths::root().join("deploy");
    put(binary, &root.join("usr/bin/postroad"), 0o755)?;
    put(&deploy.join("systemd/postroad.env"), &root.join("etc/postroad/postroad.env"), 0o640)?;
    put(&paths::root().join("LICENSE"), &root.join("usr/share/doc/postroad/copyright"), 0o644)?;
    let unit = read(&deploy.join("systemd/postroad.service"))?;
    // A package installs into /usr; /usr/local is for manual installation.
    let unit = unit.replace("/usr/local/bin/postroad", "/usr/bin/postroad");
    write(&root.join("lib/systemd/system/postroad.service"), &unit, 0o644)?;

    let bytes = fs::metadata(binary).context(|| "cannot look at the binary".to_owned())?.len();
    let control = read(&deploy.join("debian/control"))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture.debian)
        .replace("@KIBIBYTES@", &(bytes / 1024).to_string());
    write(&root.join("DEBIAN/control"), &control, 0o644)?;
    write(&root.join("DEBIAN/conffiles"), "/etc/postroad/postroad.env\n", 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        put(&deploy.join("debian").join(script), &root.join("DEBIAN").join(script), 0o755)?;
    }
    let made = folder.join(format!("postroad_{VERSION}_{}.deb", architecture.debian));
    let [root, made_as] = [&root, &made].map(|path| path.display().to_string());
    run_step("dpkg-deb", &["--build", "--root-owner-group", "-Zxz", &root, &made_as])?;
    Ok(made)
}

fn image(folder: &Path, binary: &Path) -> Outcome {
    let context = folder.join("container");
    put(binary, &context.join("postroad"), 0o755)?;
    let data = context.join("data");
    fs::create_dir_all(&data).context(|| format!("cannot make {}", data.display()))?;
    let file = paths::root().join("deploy/container/Containerfile");
    put(&file, &context.join("Containerfile"), 0o644)?;
    let tag = format!("postroad:{VERSION}");
    let (file, context) =
        (context.join("Containerfile").display().to_string(), context.display().to_string());
    // The docker client may be installed without an engine.
    let usable = |tool: &str| {
        let mut asked = Command::new(tool);
        asked.arg("info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    match IMAGE_TOOLS.into_iter().find(|tool| usable(tool)) {
        Some(tool) => {
            run_step(tool, &["build", "--tag", &tag, "--file", &file, &context])?;
            println!("image {tag}, by {tool}");
        }
        None => println!("no image: none of {} can be used here", IMAGE_TOOLS.join(", ")),
    }
    Ok(())
}

fn is_there(program: &str) -> bool {
    let mut asked = Command::new(program);
    asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok()
}

fn run_step(program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(arguments);
    output_of(command, &format!("{program} {}", arguments.join(" "))).map(drop)
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str, mode: u32) -> Outcome {
    create_parent(path)?;
    fs::write(path, text).context(|| format!("cannot write {}", path.display()))?;
    set_mode(path, mode)
}

fn put(from: &Path, to: &Path, mode: u32) -> Outcome {
    create_parent(to)?;
    fs::copy(from, to).context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    set_mode(to, mode)
}

fn create_parent(path: &Path) -> Outcome {
    let folder = path.parent().expect("it is in a folder");
    fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))
}

fn set_mode(path: &Path, mode: u32) -> Outcome {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).context(|| format!("cannot change {}", path.display()))
}
