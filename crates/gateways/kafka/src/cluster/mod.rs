//! Requests about the nodes of the cluster: controllers and features, log directories, preferred leaders, and the
//! placement of replicas. Depends on the catalog and the leaders.

pub(crate) mod elections;
pub(crate) mod log_dirs;
pub(crate) mod quorum;
pub(crate) mod reassignments;
