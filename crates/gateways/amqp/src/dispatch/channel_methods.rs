//! Dispatch of the methods of a channel, after a check of the channel's state. Methods that only change settings of
//! the channel are handled here.

use broker::delivery::Settlement;
use bytes::Bytes;

use crate::channel::Channel;
use crate::codec::methods::{
    AccessRequest, AccessRequestOk, BasicQos, BasicQosOk, ChannelClose, ChannelCloseOk,
    ChannelFlow, ChannelFlowOk, ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, Method,
    MethodId,
};
use crate::deliveries::settle::refusal;
use crate::errors::{Exception, ReplyCode};
use crate::failure::{Failure, bad_method};
use crate::session::Session;
use crate::session::operation::OperationResult;

impl Session {
    /// Returns an open channel, or the failure that it is not open.
    fn running(&mut self, number: u16, method: MethodId) -> Result<&mut Channel, Failure> {
        let missing = || Failure {
            channel: 0,
            method,
            exception: Exception::new(ReplyCode::ChannelError, "expected 'channel.open'"),
        };
        self.channels.get_mut(&number).ok_or_else(missing)
    }

    pub(crate) fn channel_method(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let method = Method::decode(payload).map_err(|error| bad_method(&error, payload))?;
        let id = method.id();
        let fail = |exception| Failure { channel: number, method: id, exception };
        if let Method::ChannelOpen(_) = method {
            return self.open_channel(number);
        }
        let channel = self.running(number, id)?;
        if channel.is_closing {
            match method {
                Method::ChannelCloseOk(_) => {
                    self.channels.remove(&number);
                }
                Method::ChannelClose(_) => self.output.method(number, ChannelCloseOk::default()),
                _ => {}
            }
            return Ok(());
        }
        if let Some(content) = &channel.content {
            return Err(content.unexpected());
        }
        if let Method::BasicPublish(publish) = method {
            return self.begin_content(number, &publish, frame).map_err(fail);
        }
        self.method(number, method).map_err(fail)
    }

    fn open_channel(&mut self, number: u16) -> Result<(), Failure> {
        let fail = |method, exception| Err(Failure { channel: 0, method, exception });
        if self.channels.contains_key(&number) {
            let second = Exception::new(ReplyCode::ChannelError, "second 'channel.open' seen");
            return fail(ChannelOpen::ID, second);
        }
        let (opened, max) = (self.channels.len(), self.negotiated.channel_max);
        if opened >= usize::from(max) {
            let text = format!(
                "number of channels opened ({opened}) has reached the negotiated channel_max \
                 ({max})"
            );
            return fail(MethodId::default(), Exception::new(ReplyCode::NotAllowed, text));
        }
        let counted = match self.count_channel() {
            Ok(counted) => counted,
            Err(exception) => return fail(ChannelOpen::ID, exception),
        };
        self.generation += 1;
        self.channels.insert(number, Channel::new(self.generation, Some(counted)));
        self.output.method(number, ChannelOpenOk::default());
        Ok(())
    }

    fn method(&mut self, number: u16, method: Method<'_>) -> Result<(), Exception> {
        match method {
            Method::BasicAck(ack) => {
                self.settle(number, ack.delivery_tag, ack.multiple, Settlement::Accept)
            }
            Method::BasicNack(nack) => {
                self.settle(number, nack.delivery_tag, nack.multiple, refusal(nack.requeue))
            }
            Method::BasicReject(reject) => {
                self.settle(number, reject.delivery_tag, false, refusal(reject.requeue))
            }
            Method::BasicQos(qos) => self.qos(number, &qos),
            Method::BasicConsume(consume) => self.consume(number, &consume),
            Method::BasicCancel(cancel) => {
                self.cancel(number, cancel.consumer_tag, cancel.no_wait);
                Ok(())
            }
            // The reply to a cancellation that the server does not wait for.
            Method::BasicCancelOk(_) => Ok(()),
            Method::BasicGet(get) => self.get(number, &get),
            Method::BasicRecover(recover) => self.recover(number, recover.requeue, true),
            Method::BasicRecoverAsync(recover) => self.recover(number, recover.requeue, false),
            Method::ConfirmSelect(select) => self.confirm_select(number, &select),
            Method::TxSelect(_) => self.tx_select(number),
            Method::TxCommit(_) => self.tx_commit(number),
            Method::TxRollback(_) => self.tx_rollback(number),
            Method::ChannelFlow(flow) => self.flow(number, flow),
            Method::ChannelFlowOk(_) => Ok(()),
            Method::ChannelClose(_) => {
                self.close_channel(number);
                Ok(())
            }
            Method::AccessRequest(AccessRequest { .. }) => {
                let ok = AccessRequestOk { ticket: 1, ..AccessRequestOk::default() };
                self.output.method(number, ok);
                Ok(())
            }
            Method::ExchangeDeclare(declare) => self.declare_exchange(number, &declare),
            Method::ExchangeDelete(delete) => self.delete_exchange(number, &delete),
            Method::ExchangeBind(bind) => self.bind_exchange(number, &bind),
            Method::ExchangeUnbind(unbind) => self.unbind_exchange(number, &unbind),
            Method::QueueDeclare(declare) => self.declare_queue(number, &declare),
            Method::QueueBind(bind) => self.bind_queue(number, &bind),
            Method::QueueUnbind(unbind) => self.unbind_queue(number, &unbind),
            Method::QueuePurge(purge) => self.purge_queue(number, &purge),
            Method::QueueDelete(delete) => self.delete_queue(number, &delete),
            _ => Err(Exception::new(ReplyCode::CommandInvalid, "unimplemented method")),
        }
    }

    /// Closes a channel for the client. Its consumers leave first, so that an auto-delete queue is deleted before the
    /// reply.
    fn close_channel(&mut self, number: u16) {
        let left = self.leave_channel(number);
        let vhost = self.vhost.clone();
        let future = async move {
            left.end(vhost).await?;
            Ok(OperationResult::ChannelClosed)
        };
        self.begin(number, ChannelClose::ID, future);
    }

    fn qos(&mut self, number: u16, qos: &BasicQos<'_>) -> Result<(), Exception> {
        if qos.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", qos.prefetch_size);
            return Err(Exception::new(ReplyCode::NotImplemented, text));
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            if qos.global {
                channel.prefetch_together = qos.prefetch_count;
                if let Some(leases) = &channel.leases {
                    leases.limit(Some(u32::from(qos.prefetch_count)).filter(|count| *count > 0));
                }
            } else {
                channel.prefetch = qos.prefetch_count;
            }
        }
        self.output.method(number, BasicQosOk::default());
        Ok(())
    }

    fn confirm_select(&mut self, number: u16, select: &ConfirmSelect<'_>) -> Result<(), Exception> {
        if let Some(channel) = self.channels.get_mut(&number) {
            if channel.transaction.is_some() {
                return Err(Exception::precondition_failed(
                    "cannot switch from tx to confirm mode",
                ));
            }
            channel.confirms.get_or_insert_default();
        }
        if !select.no_wait {
            self.output.method(number, ConfirmSelectOk::default());
        }
        Ok(())
    }

    fn flow(&mut self, number: u16, flow: ChannelFlow<'_>) -> Result<(), Exception> {
        if !flow.active {
            return Err(Exception::new(ReplyCode::NotImplemented, "active=false"));
        }
        let ok = ChannelFlowOk { active: true, ..ChannelFlowOk::default() };
        self.output.method(number, ok);
        Ok(())
    }
}
