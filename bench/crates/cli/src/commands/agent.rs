//! `agent`: sends and receives on this machine for a coordinator on another.

use std::path::Path;
use std::process::ExitCode;

use agents::Server;

use crate::arguments::AgentArguments;
use crate::failure::CliError;

pub(crate) async fn run(arguments: AgentArguments) -> Result<ExitCode, CliError> {
    let token = arguments.token_file.as_deref().map(read_token).transpose()?;
    let door = if token.is_some() { "asks for the token" } else { "asks for no token" };
    let server = Server::bind(&arguments.listen, token, drivers::connect).await;
    let server = server.map_err(CliError::user)?;
    println!("agent on {}: {door}, works for one coordinator at a time", server.address());
    tokio::select! {
        () = server.serve() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the file without the trailing whitespace that editors add.
pub(crate) fn read_token(path: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(path).map_err(CliError::io(path))?;
    match text.trim_end() {
        "" => Err(CliError::user(format!("{} holds no token", path.display()))),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_the_trimmed_text_of_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        for (text, token) in [("secret\n", Some("secret")), ("a b", Some("a b")), ("\n", None)] {
            std::fs::write(&path, text).expect("is written");
            assert_eq!(read_token(&path).ok().as_deref(), token);
        }
        let missing = read_token(&folder.path().join("none")).expect_err("is not there");
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}
