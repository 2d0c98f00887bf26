//! Nodes that become one cluster over real sockets of this machine, and admission after that.

mod crashes;
mod founded;
mod harness;
mod joining;
mod lists;
mod requests;
mod restarts;
