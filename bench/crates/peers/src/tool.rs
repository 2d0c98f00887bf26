//! Java tools of a broker's project: they are clients for any broker with its protocol, and no
//! servers.

use std::path::PathBuf;

use crate::install::{self, Coordinates, Package};
use crate::plan::folder;
use crate::{InstallError, Need, Peers, Progress};

/// An available tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// ProducerPerformance and others: a part of Apache Kafka.
    Kafka,
    /// RabbitMQ's PerfTest.
    PerfTest,
}

const PERF_TEST: Package =
    Package { name: "rabbitmq-perf-test", version: "2.22.1", needs: &[Need::Java, Need::Maven] };
const PERF_TEST_LIBRARIES: &[Coordinates] = &[("com.rabbitmq", "perf-test", PERF_TEST.version)];

impl Peers {
    /// Installs a tool, unless it is installed. Returns the folder of its libraries.
    pub fn install_tool(
        &self,
        tool: Tool,
        progress: &dyn Progress,
    ) -> Result<PathBuf, InstallError> {
        let name = match tool {
            Tool::Kafka => {
                self.install("kafka", progress)?;
                "kafka"
            }
            Tool::PerfTest => {
                let fill = |installer: &install::Installer<'_>| {
                    installer.libraries(PERF_TEST_LIBRARIES).map(|()| None)
                };
                if install::installed(&self.software(PERF_TEST.name), PERF_TEST).is_none() {
                    let place = folder(self.dir().join(PERF_TEST.name))?;
                    install::put(PERF_TEST, &place, None, progress, fill)?;
                }
                PERF_TEST.name
            }
        };
        Ok(self.software(name).join("libs"))
    }
}
