package compat;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.RpcServer;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Consumers, acknowledgements, prefetch, cancellation, replies, streams. */
final class Consuming {
    private Consuming() {}

    static void register(Suite suite) {
        suite.add("consume-and-acknowledge", Consuming::consume);
        suite.add("nack-and-redelivered", Consuming::nack);
        suite.add("prefetch", Consuming::prefetch);
        suite.add("prefetch-of-the-channel", Consuming::prefetchOfTheChannel);
        suite.add("recover", Consuming::recover);
        suite.add("cancel-notification", Consuming::cancelNotification);
        suite.add("consumer-priority", Consuming::priority);
        suite.add("single-active-consumer", Consuming::singleActive);
        suite.add("exclusive-consumer", Consuming::exclusive);
        suite.add("direct-reply-to-rpc", Consuming::directReplyTo);
        suite.add("rpc-client-and-server", Consuming::rpcByQueue);
        suite.add("stream", Consuming::stream);
    }

    private static Object[] numbers(int count) {
        return IntStream.range(0, count).boxed().toArray();
    }

    private static void consume(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Context.send(channel, queue, numbers(100));
        Deliveries consumer = Deliveries.of(channel, queue);
        List<Delivery> deliveries = consumer.take(100);
        channel.basicAck(deliveries.get(89).getEnvelope().getDeliveryTag(), true);
        channel.close();
        Channel other = context.channel();
        List<String> wanted = IntStream.range(90, 100).mapToObj(String::valueOf).toList();
        Expect.equal(Context.getAll(other, queue, 10), wanted, "what comes back");
    }

    private static void nack(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Context.send(channel, queue, "a", "b");
        Deliveries consumer = Deliveries.of(channel, queue);
        List<Delivery> first = consumer.take(2);
        Expect.holds(!first.get(0).getEnvelope().isRedeliver(), "not redelivered");
        channel.basicNack(first.get(1).getEnvelope().getDeliveryTag(), true, true);
        for (Delivery again : consumer.take(2)) {
            Expect.holds(again.getEnvelope().isRedeliver(), "redelivered");
            channel.basicReject(again.getEnvelope().getDeliveryTag(), false);
        }
        consumer.staysEmpty();
    }

    private static void prefetch(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Context.send(channel, queue, numbers(10));
        channel.basicQos(3);
        Deliveries consumer = Deliveries.of(channel, queue);
        List<Delivery> taken = consumer.take(3);
        consumer.staysEmpty();
        channel.basicAck(taken.get(1).getEnvelope().getDeliveryTag(), true);
        Expect.equal(consumer.texts(2), List.of("3", "4"), "two more");
        consumer.staysEmpty();
    }

    private static void prefetchOfTheChannel(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        channel.basicQos(4, true);
        Deliveries one = Deliveries.of(channel, queue);
        Deliveries two = Deliveries.of(channel, queue);
        Context.send(channel, queue, numbers(10));
        one.take(2);
        two.take(2);
        one.staysEmpty();
        two.staysEmpty();
    }

    private static void recover(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Context.send(channel, queue, "a", "b");
        Deliveries consumer = Deliveries.of(channel, queue);
        consumer.take(2);
        channel.basicRecover(true);
        Expect.equal(consumer.texts(2), List.of("a", "b"), "again");
    }

    private static void cancelNotification(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Deliveries consumer = Deliveries.of(channel, queue);
        context.channel().queueDelete(queue);
        Expect.eventually(() -> consumer.cancelled, 10, "the consumer is told");
        Expect.holds(channel.isOpen(), "the channel stays");
    }

    private static void priority(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        channel.basicQos(1);
        Deliveries low = Deliveries.of(channel, queue, false, Map.of("x-priority", 1));
        Deliveries high = Deliveries.of(channel, queue, false, Map.of("x-priority", 7));
        Context.send(channel, queue, "a", "b");
        Expect.equal(high.texts(1), List.of("a"), "the higher first");
        Expect.equal(low.texts(1), List.of("b"), "the lower when the higher is full");
    }

    private static void singleActive(Context context) throws Exception {
        Channel first = context.channel();
        Channel second = context.channel();
        String queue = context.queue(first, Map.of("x-single-active-consumer", true));
        Deliveries one = Deliveries.of(first, queue);
        Deliveries two = Deliveries.of(second, queue);
        Context.send(second, queue, "a", "b");
        Expect.equal(one.texts(2), List.of("a", "b"), "the first");
        two.staysEmpty();
        first.close();
        Expect.equal(two.texts(2), List.of("a", "b"), "the second, afterwards");
    }

    private static void exclusive(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Deliveries consumer = Deliveries.of(channel, queue);
        Channel other = context.channel();
        Expect.refused(
                IOException.class,
                () -> other.basicConsume(queue, false, "", false, true, Map.of(), consumer),
                "an exclusive one beside it");
    }

    private static void directReplyTo(Context context) throws Exception {
        Channel client = context.channel();
        String queue = context.queue(client, null);
        Channel server = context.channel();
        server.basicConsume(
                queue,
                true,
                (tag, request) -> {
                    String id = request.getProperties().getCorrelationId();
                    server.basicPublish(
                            "",
                            request.getProperties().getReplyTo(),
                            new AMQP.BasicProperties.Builder().correlationId(id).build(),
                            Context.bytes("re " + Context.text(request.getBody())));
                },
                tag -> {});
        RpcClientParams parameters =
                new RpcClientParams()
                        .channel(client)
                        .exchange("")
                        .routingKey(queue)
                        .replyTo("amq.rabbitmq.reply-to")
                        .timeout(10_000);
        RpcClient rpc = new RpcClient(parameters);
        for (int number = 0; number < 50; number++) {
            Expect.equal(rpc.stringCall("n" + number), "re n" + number, "reply");
        }
        rpc.close();
    }

    private static void rpcByQueue(Context context) throws Exception {
        Channel server = context.channel();
        String queue = context.queue(server, null);
        RpcServer echo =
                new RpcServer(server, queue) {
                    @Override
                    public byte[] handleCall(byte[] body, AMQP.BasicProperties properties) {
                        return Context.bytes("re " + Context.text(body));
                    }
                };
        Suite.start(
                () -> {
                    try {
                        echo.mainloop();
                    } catch (Exception end) {
                        // The scenario is over.
                    }
                });
        Channel client = context.channel();
        String own = client.queueDeclare().getQueue();
        RpcClientParams parameters =
                new RpcClientParams()
                        .channel(client)
                        .exchange("")
                        .routingKey(queue)
                        .replyTo(own)
                        .timeout(10_000);
        RpcClient rpc = new RpcClient(parameters);
        for (int number = 0; number < 20; number++) {
            Expect.equal(rpc.stringCall("n" + number), "re n" + number, "reply");
        }
        echo.terminateMainloop();
    }

    private static void stream(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, Map.of("x-queue-type", "stream"));
        Context.send(channel, queue, numbers(20));
        channel.waitForConfirmsOrDie(10_000);
        for (Object offset : List.of("first", 15L)) {
            Channel own = context.channel();
            own.basicQos(100);
            Map<String, Object> arguments = Map.of("x-stream-offset", offset);
            Deliveries consumer = Deliveries.of(own, queue, false, arguments);
            long start = offset instanceof Long number ? number : 0;
            for (long wanted = start; wanted < 20; wanted++) {
                Delivery delivery = consumer.next();
                Expect.equal(Context.text(delivery.getBody()), "" + wanted, "body");
                Object told = delivery.getProperties().getHeaders().get("x-stream-offset");
                Expect.equal(told, wanted, "x-stream-offset");
            }
        }
    }
}
