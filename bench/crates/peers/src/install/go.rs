//! Installation from the Go module proxy, built by the user's own `go`.

use std::process::Command;

use super::Installer;
use crate::errors::InstallError;

impl Installer<'_> {
    /// Builds a module's program into `bin`.
    pub(crate) fn go(
        &self,
        module: &str,
        version: &str,
        program: &str,
    ) -> Result<(), InstallError> {
        self.say("building (Go)");
        let mut go = Command::new("go");
        go.arg("install").arg(format!("{module}@v{version}"));
        go.env("GOBIN", self.staging.join("bin")).env("CGO_ENABLED", "0").env_remove("GOFLAGS");
        go.current_dir(&self.staging);
        self.run(go, "go install")?;
        self.expect(&format!("bin/{program}")).map(|_| ())
    }
}
