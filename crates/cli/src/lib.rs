//! The command line: every command but those that run the broker's own code.
//!
//! A command prints its result on standard output and everything else on standard error. It ends with 0 on success,
//! with 1 for an error that the user can fix, and with 2 when the server cannot be reached or fails.
//!
//! A command talks to a broker as any client does, or reads files. So this crate depends on the client, the documents
//! of operators and the formats of records, journals and state, and on no part of a running node: it is compiled
//! beside the broker and its gateways. The crate `postroad` has the commands `serve`, `restore` and `recover`, which
//! open a broker, and puts all of them together. `doctor` is given the names of the settings of `serve`.
//!
//! * [`Command`]: the commands; [`runtime`]: the runtime of those that wait for a broker
//! * `client_options`: address, encryption and authentication; [`operator_token`]: the operators' token
//! * [`CommandError`]: failures with their exit code; `failure`: texts for errors of the client
//! * [`output`], `progress`: printed values; [`printable`]: escapes text for a terminal
//! * `position`, [`size`]: typed values
//! * `topics`, `records`, `groups`, `queues`: topics and their contents
//! * `cluster`, `top`, `doctor`: nodes
//! * `vhosts`, `security`: virtual hosts, users, rules, quotas, certificates
//! * [`journal`]: journals on disk

mod client_options;
mod cluster;
mod command;
mod command_error;
mod doctor;
mod failure;
mod groups;
pub mod journal;
pub mod operator_token;
pub mod output;
mod position;
pub mod printable;
mod progress;
mod queues;
mod records;
pub mod runtime;
mod security;
pub mod size;
mod top;
mod topics;
mod vhosts;

pub use cluster::backup::BackupReport;
pub use command::Command;
pub use command_error::CommandError;
pub use doctor::KnownSetting;
pub use output::OutputOption;
