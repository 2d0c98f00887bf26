//! Owners of ports. The suite's own ports are fixed, and no broker has them as defaults. So a port
//! that is in use is reported with its owner, and never replaced: results would be of the wrong
//! server.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

/// Describes the owner of the port; `None` if it is free.
pub(crate) fn owner(port: u16) -> Option<String> {
    if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
        return None;
    }
    let found = listening_inodes(port).into_iter().find_map(process_with_socket);
    Some(found.unwrap_or_else(|| "a process of another user".to_owned()))
}

/// Sockets that listen on this port, at any address (`proc_net_tcp(5)`).
fn listening_inodes(port: u16) -> Vec<u64> {
    const LISTENING: &str = "0A";
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let texts = tables.into_iter().flatten();
    let mut inodes = Vec::new();
    for text in texts {
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(local), Some(&state), Some(inode)) =
                (fields.get(1), fields.get(3), fields.get(9))
            else {
                continue;
            };
            let local_port = local.rsplit_once(':').map(|(_, port)| u16::from_str_radix(port, 16));
            if local_port == Some(Ok(port)) && state == LISTENING {
                inodes.extend(inode.parse::<u64>());
            }
        }
    }
    inodes
}

fn process_with_socket(inode: u64) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(entry.path().join("fd")) else { continue };
        let has = |link: fs::DirEntry| {
            fs::read_link(link.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str())
        };
        if files.flatten().any(has) {
            return Some(format!("process {pid} ({})", command(pid)));
        }
    }
    None
}

/// The beginning of its command line.
fn command(pid: u32) -> String {
    const ENOUGH: usize = 60;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    text.trim().chars().take(ENOUGH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_port_is_reported_with_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let owner = owner(port).expect("it is taken");
        assert!(owner.starts_with(&format!("process {}", std::process::id())), "{owner}");
    }

    #[test]
    fn listener_on_all_addresses_is_found() {
        let listener = TcpListener::bind("0.0.0.0:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        assert!(owner(port).expect("it is taken").contains(&std::process::id().to_string()));
    }

    #[test]
    fn a_free_port_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        assert_eq!(owner(port), None);
    }
}
