/// Receives progress messages for the user; one line each.
pub trait Progress: Sync {
    fn say(&self, peer: &str, what: &str);
}

impl<F: Fn(&str, &str) + Sync> Progress for F {
    fn say(&self, peer: &str, what: &str) {
        self(peer, what);
    }
}

/// Ignores all messages.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn say(&self, _: &str, _: &str) {}
}
