//! Checks the prerequisites on the machine before anything is fetched.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::Package;
use crate::Need;
use crate::errors::InstallError;

const JAVA_AT_LEAST: u32 = 17;

pub(super) fn check(package: Package) -> Result<(), InstallError> {
    for need in package.needs {
        let missing =
            |what: String, remedy| Err(InstallError::Missing { peer: package.name, what, remedy });
        match need {
            Need::Java => match java_version() {
                Some(version) if version >= JAVA_AT_LEAST => {}
                Some(version) => {
                    return missing(
                        format!("Java {JAVA_AT_LEAST} or newer (this is {version})"),
                        "install a newer JDK (apt-get install default-jdk-headless), or set JAVA_HOME",
                    );
                }
                None => {
                    return missing(
                        "java".to_owned(),
                        "install a JDK (apt-get install default-jdk-headless), or set JAVA_HOME",
                    );
                }
            },
            Need::Maven if output("mvn", "--version").is_none() => {
                return missing("mvn".to_owned(), "install Maven (apt-get install maven)");
            }
            Need::Go if output("go", "version").is_none() => {
                return missing("go".to_owned(), "install Go (apt-get install golang-go)");
            }
            Need::Apt => {
                for tool in ["apt-get", "dpkg-deb"] {
                    if output(tool, "--version").is_none() {
                        return missing(
                            tool.to_owned(),
                            "its packages are Debian's: use Debian or Ubuntu, or a container of it",
                        );
                    }
                }
            }
            Need::Maven | Need::Go => {}
        }
    }
    Ok(())
}

/// The `java` of `JAVA_HOME`, or else the one on the path.
pub fn java() -> PathBuf {
    match std::env::var_os("JAVA_HOME") {
        Some(home) if !home.is_empty() => PathBuf::from(home).join("bin/java"),
        _ => PathBuf::from("java"),
    }
}

fn java_version() -> Option<u32> {
    let java = java();
    major_version(&output(java.to_str()?, "-version")?)
}

/// Extracts 17 from `openjdk version "17.0.15" 2025-04-15`.
fn major_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("version \"")?;
    version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Output of a program, if it can be run.
fn output(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    output.status.success().then(|| String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_versions_are_parsed() {
        assert_eq!(major_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(major_version("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(major_version("java version \"1.8.0_292\""), Some(1));
        assert_eq!(major_version("The operation couldn't be completed"), None);
    }
}
