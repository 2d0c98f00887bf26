//! Java tools from Maven Central: fetched once into a folder, run, and their output taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};

/// Group, artifact and version of a library; what it depends on comes with it.
pub(super) type Coordinates = (&'static str, &'static str, &'static str);

/// Enough for every tool that takes load off a broker here; all contenders get the same.
pub(super) const TOOL_HEAP: &str = "512m";

/// Fetches these into `home/libs`, unless the last of them is there already.
pub(super) fn install(home: &Path, name: &str, wanted: &[Coordinates]) -> Outcome<PathBuf> {
    let libraries = home.join("libs");
    let there = wanted
        .iter()
        .all(|(_, artifact, version)| libraries.join(format!("{artifact}-{version}.jar")).exists());
    fs::create_dir_all(home).context(|| format!("cannot create {}", home.display()))?;
    fs::write(home.join("pom.xml"), pom(wanted)).context(|| "cannot write pom.xml")?;
    if !there {
        eprintln!("installing {name} (Maven, about a minute)");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"]);
        maven.current_dir(home);
        output_of(maven, "Maven").map_err(|failure| {
            failure.remedy("install Maven and a JDK 17 (apt-get install maven default-jdk)")
        })?;
    }
    Ok(libraries)
}

fn pom(wanted: &[Coordinates]) -> String {
    let dependency = |(group, artifact, version): &Coordinates| {
        format!(
            "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>\n"
        )
    };
    let dependencies: String = wanted.iter().map(dependency).collect();
    format!(
        "<project><modelVersion>4.0.0</modelVersion>\n  \
         <groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>\
         <packaging>pom</packaging>\n  <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    )
}

/// `java` with a fixed heap and this class path.
pub(super) fn java(heap: &str, class_path: &[PathBuf]) -> Command {
    let class_path: Vec<String> =
        class_path.iter().map(|path| path.display().to_string()).collect();
    let mut command = Command::new("java");
    command.arg(format!("-Xms{heap}")).arg(format!("-Xmx{heap}"));
    command.arg("-cp").arg(class_path.join(":"));
    command
}

/// Runs a tool to its end; its output, or what it complained of.
pub(crate) fn output_of(mut command: Command, name: &str) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}"))?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        let last: Vec<&str> = out.lines().chain(err.lines()).collect();
        let last = last[last.len().saturating_sub(15)..].join("\n    | ");
        return Err(Failure::new(format!("{name} ended with {}\n    | {last}", output.status)));
    }
    Ok(out.into_owned())
}
