//! The operator token, which commands from another machine must present.
//!
//! It is created with the data directory and never changes, so that it can be copied once. Only the server's own user
//! can read it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use world::Entropy;

const FILE: &str = "operator.token";

/// Path of the token in a data directory.
pub fn path(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// The token of this data directory, created if it is missing.
pub fn of(data: &Path, entropy: &dyn Entropy) -> io::Result<String> {
    let path = path(data);
    match read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => make(data, &path, entropy),
        found => found,
    }
}

/// Reads a token from its file, which has one line.
pub fn read(path: &Path) -> io::Result<String> {
    let token = fs::read_to_string(path)?.trim().to_owned();
    match token.is_empty() {
        false => Ok(token),
        true => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "{} is empty; delete it and start the server to have a new one",
                path.display()
            ),
        )),
    }
}

/// Writes a draft and renames it: a crash leaves no partial token.
fn make(data: &Path, path: &Path, entropy: &dyn Entropy) -> io::Result<String> {
    // Each has 122 random bits.
    let token = format!("{}{}", entropy.uuid().simple(), entropy.uuid().simple());
    let beside = data.join(format!("{FILE}.new"));
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use world::OsEntropy;

    use super::*;

    #[test]
    fn token_is_created_once_and_only_its_owner_reads_it() {
        let data = tempfile::tempdir().expect("a folder");
        let token = of(data.path(), &OsEntropy).expect("is made");
        assert_eq!(token.len(), 64);
        assert_eq!(of(data.path(), &OsEntropy).expect("is read"), token);
        let mode = fs::metadata(data.path().join(FILE)).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = tempfile::tempdir().expect("a folder");
        assert_ne!(of(other.path(), &OsEntropy).expect("is made"), token);
    }

    #[test]
    fn an_empty_file_is_no_token() {
        let data = tempfile::tempdir().expect("a folder");
        fs::write(data.path().join(FILE), "\n").expect("is written");
        assert!(of(data.path(), &OsEntropy).is_err());
    }
}
