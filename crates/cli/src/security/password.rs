//! A password, typed or piped. It is hashed here: neither the wire nor the node sees it.

use std::io::{self, BufRead, IsTerminal, Write};

use passwords::{Verifiers, hash_password};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::command_error::CommandError;

/// Stored form of the given password, or of a line of standard input: its hash, and SCRAM verifiers unless
/// `without_scram`.
pub(super) fn hashed(
    user: &str,
    given: Option<String>,
    without_scram: bool,
) -> Result<(String, Vec<String>), CommandError> {
    let password = match given {
        Some(password) => password,
        None => read(user)
            .map_err(|error| CommandError::user(format!("the password cannot be read: {error}")))?,
    };
    if without_scram {
        return Ok((hash_password(&password).map_err(CommandError::user)?, Vec::new()));
    }
    let Verifiers { password_hash, scram, .. } =
        Verifiers::from_password(&password).map_err(CommandError::user)?;
    Ok((password_hash.unwrap_or_default(), scram))
}

fn read(user: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let _unseen = if stdin.is_terminal() {
        let mut stderr = io::stderr().lock();
        write!(stderr, "password of {user}: ")?;
        stderr.flush()?;
        Some(EchoGuard::start()?)
    } else {
        None
    };
    let mut line = String::new();
    stdin.lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Disables the terminal's echo while it lives.
struct EchoGuard {
    before: Termios,
}

impl EchoGuard {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut changed = before.clone();
        changed.local_modes.remove(LocalModes::ECHO);
        // The line end is still echoed, so that the next output begins on a new line.
        changed.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &changed)?;
        Ok(Self { before })
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        // A failure of the terminal cannot be handled here.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
