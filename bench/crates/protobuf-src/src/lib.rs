//! Provides a protoc to build scripts that would otherwise build one from its C++ sources: Pulsar's
//! client has its protocol as a `.proto` file only. The user's choice (`PROTOC`) comes first, then
//! the published binary for this machine, then the one on the path.

use std::path::PathBuf;

/// Path of a protoc that can be run.
pub fn protoc() -> PathBuf {
    std::env::var_os("PROTOC").map_or_else(published, PathBuf::from)
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn published() -> PathBuf {
    protoc_bin_vendored_linux_x86_64::protoc_bin_path()
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
fn published() -> PathBuf {
    protoc_bin_vendored_linux_aarch_64::protoc_bin_path()
}

#[cfg(all(target_os = "macos", target_arch = "x86_64"))]
fn published() -> PathBuf {
    protoc_bin_vendored_macos_x86_64::protoc_bin_path()
}

#[cfg(all(target_os = "macos", target_arch = "aarch64"))]
fn published() -> PathBuf {
    protoc_bin_vendored_macos_aarch_64::protoc_bin_path()
}

#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(target_os = "macos", any(target_arch = "x86_64", target_arch = "aarch64")),
)))]
fn published() -> PathBuf {
    PathBuf::from("protoc")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    #[test]
    fn protoc_can_be_run() {
        let output = Command::new(super::protoc()).arg("--version").output().expect("runs");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("libprotoc"));
    }
}
