//! Log-in requirements of ports, in words: for the start of a node, and for the operator who creates its first user.

use super::Users;
use crate::login_ports::{Admission, LoginPort, LoginPorts};
use crate::user_name::GUEST;

impl Admission {
    /// Whether a client that connects now must log in, given these users.
    pub fn is_log_in_required(self, users: Option<&Users>) -> bool {
        match self {
            Self::Open => false,
            Self::Required => true,
            Self::OpenWithoutUsers => users.is_some_and(Users::has_any),
        }
    }
}

impl LoginPorts {
    /// Settings of the ports that require a log-in, and of those that are open.
    fn split(&self, users: &Users) -> [Vec<&'static str>; 2] {
        let settings = |required: bool| {
            let is_so =
                |port: &&LoginPort| port.admission.is_log_in_required(Some(users)) == required;
            self.ports.iter().filter(is_so).map(|port| port.setting).collect()
        };
        [settings(true), settings(false)]
    }
}

impl Users {
    /// Sets the node's ports; called once, at its start.
    pub fn set_login_ports(&self, ports: LoginPorts) {
        let set = self.0.login_ports.set(ports);
        debug_assert!(set.is_ok(), "they were set before");
    }

    /// `log-in required: kafka, http`, followed by the open ports, if there are any.
    pub fn login_line(&self) -> String {
        let [required, open] =
            self.0.login_ports.get().map_or_else(Default::default, |ports| ports.split(self));
        let or_none = |settings: Vec<&str>| match settings.is_empty() {
            true => "none".to_owned(),
            false => settings.join(", "),
        };
        let open = if open.is_empty() {
            String::new()
        } else {
            format!(", open to everybody: {}", open.join(", "))
        };
        format!("log-in required: {}{open}", or_none(required))
    }

    /// Effect of the first user on clients: the ports that now require a log-in, and since when. `None`: no effect.
    pub fn login_notice(&self) -> Option<String> {
        let known = self.0.login_ports.get().filter(|known| known.by_users && self.has_any())?;
        let of = |admission: Admission| {
            let ports = known.ports.iter().filter(|port| port.admission == admission);
            let named = ports.map(|port| format!("{} {}", port.setting, port.address));
            named.collect::<Vec<_>>().join(", ")
        };
        let keep = "To keep them open, start the node with --auth off.";
        let later = of(Admission::Open);
        if !later.is_empty() {
            return Some(format!(
                "there are users now, and auth is \"auto\": from the next start of this node on, every client has to \
                 log in at {later}. Until then these ports are open to everybody. {keep}"
            ));
        }
        let at_once = of(Admission::OpenWithoutUsers);
        (!at_once.is_empty() && self.has_one()).then(|| {
            format!(
                "this is the first user, and auth is \"auto\": from now on, every client that connects has to log in \
                 at {at_once}, and at the same ports of the other nodes. {keep}"
            )
        })
    }

    /// Whether there is exactly one user besides the default one.
    fn has_one(&self) -> bool {
        let accounts = self.0.accounts.read();
        let made = accounts.values().filter(|account| &*account.name != GUEST);
        self.0.settings.is_empty() && made.take(2).count() == 1
    }

    /// Logs the effect of a new user.
    pub(crate) fn log_login_notice(&self) {
        if let Some(notice) = self.login_notice() {
            tracing::warn!("{notice}");
        }
    }
}
