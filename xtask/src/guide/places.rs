//! Places of the documentation that a trial must not touch, or cannot reach: paths of an installed node are in the
//! guide's folder instead, and hosts of an imagined network are this machine.

use std::path::Path;

const PATHS: [(&str, &str); 3] = [
    ("/etc/postroad", "etc/postroad"),
    ("/var/lib/postroad", "var/lib/postroad"),
    ("/tmp/seen", "seen"),
];
const HOSTS: [(&str, &str); 1] = [("broker.internal", "localhost")];

/// A command, its output or a file of a page, with the places of the guide.
pub(super) fn mapped(text: &str, folder: &Path) -> String {
    let mut text = text.to_owned();
    for (path, here) in PATHS {
        text = text.replace(path, &format!("{}/{here}", folder.display()));
    }
    for (host, here) in HOSTS {
        text = text.replace(host, here);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_in_the_folder_and_hosts_are_this_machine() {
        assert_eq!(
            mapped("serve --cert /etc/postroad/a -b broker.internal:9093 /tmp/b", Path::new("/g")),
            "serve --cert /g/etc/postroad/a -b localhost:9093 /tmp/b"
        );
    }
}
