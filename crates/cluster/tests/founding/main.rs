//! Nodes that become one cluster over real sockets of this machine, and who is let in after that.

mod crashes;
mod founded;
mod harness;
mod joining;
mod lists;
mod requests;
mod restarts;
