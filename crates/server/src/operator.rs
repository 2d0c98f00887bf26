//! Operators' requests over HTTP. The Kafka gateway implements them for the command line; HTTP forwards to it.

use access::Rights;
use operations::family::{OperationAnswer, OperationError};
use gateway_kafka::Operations;
use operations::document::Operation;

#[derive(Debug)]
pub(crate) struct Operator(pub(crate) Operations);

impl gateway_http::Operator for Operator {
    fn carry_out<'a>(&'a self, rights: &'a Rights, operation: Operation) -> OperationAnswer<'a> {
        Box::pin(self.0.carry_out(rights, operation))
    }

    fn check(&self, rights: &Rights, operation: &Operation) -> Result<(), OperationError> {
        self.0.check(rights, operation)
    }

    fn accept_token(&self, token: &str) -> bool {
        self.0.accept_operator_token(token)
    }
}
