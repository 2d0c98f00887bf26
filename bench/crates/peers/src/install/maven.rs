//! Installation from Maven Central, by the user's own `mvn` and its settings.

use std::fs;
use std::process::Command;

use super::Installer;
use crate::errors::{FolderError, InstallError};
use crate::plan::write;

/// Group, artifact and version of a library.
pub(crate) type Coordinates = (&'static str, &'static str, &'static str);

impl Installer<'_> {
    /// Fetches libraries and their dependencies into `libs`.
    pub(crate) fn libraries(&self, wanted: &[Coordinates]) -> Result<(), InstallError> {
        self.say("fetching libraries (Maven)");
        write(&self.staging.join("pom.xml"), pom(wanted))?;
        let mut maven = self.maven();
        maven.args(["dependency:copy-dependencies", "-DoutputDirectory=libs"]);
        maven.arg("-DincludeScope=runtime");
        self.run(maven, "Maven")?;
        for (_, artifact, version) in wanted {
            self.expect(&format!("libs/{artifact}-{version}.jar"))?;
        }
        Ok(())
    }

    /// Unpacks a whole distribution from a zip file.
    pub(crate) fn zip(&self, (group, artifact, version): Coordinates) -> Result<(), InstallError> {
        self.say("fetching the distribution (Maven)");
        let mut maven = self.maven();
        maven.arg("dependency:unpack");
        maven.arg(format!("-Dartifact={group}:{artifact}:{version}:zip:bin"));
        maven.arg(format!("-DoutputDirectory={}", self.staging.display()));
        self.run(maven, "Maven")
    }

    /// Unpacks a whole distribution from a compressed tar file. Maven itself would truncate its
    /// long names.
    pub(crate) fn tar(&self, (group, artifact, version): Coordinates) -> Result<(), InstallError> {
        self.say("fetching the distribution (Maven)");
        let mut maven = self.maven();
        maven.arg("dependency:copy");
        maven.arg(format!("-Dartifact={group}:{artifact}:{version}:tar.gz:bin"));
        maven.arg(format!("-DoutputDirectory={}", self.staging.display()));
        self.run(maven, "Maven")?;
        self.say("unpacking");
        let archive = self.expect(&format!("{artifact}-{version}-bin.tar.gz"))?;
        let mut tar = Command::new("tar");
        tar.arg("xzf").arg(&archive).current_dir(&self.staging);
        self.run(tar, "tar")?;
        fs::remove_file(&archive).map_err(FolderError::new("remove", &archive))?;
        Ok(())
    }

    fn maven(&self) -> Command {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B"]).current_dir(&self.staging);
        maven
    }
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
