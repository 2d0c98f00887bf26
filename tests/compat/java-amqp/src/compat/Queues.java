package compat;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.PossibleAuthenticationFailureException;

import java.io.IOException;
import java.util.List;
import java.util.Map;

/** Queues: durability and lifetime, limits, priorities and dead letters; and logging in. */
final class Queues {
    private Queues() {}

    static void register(Suite suite) {
        suite.add("server-named-and-exclusive", Queues::serverNamed);
        suite.add("auto-delete", Queues::autoDelete);
        suite.add("counts-and-conditions", Queues::counts);
        suite.add("inequivalent-arguments", Queues::inequivalent);
        suite.add("time-to-live-and-dead-letters", Queues::timeToLive);
        suite.add("delivery-limit", Queues::deliveryLimit);
        suite.add("max-length", Queues::maxLength);
        suite.add("max-priority", Queues::maxPriority);
        suite.add("login-refused", Queues::loginRefused);
        suite.add("server-properties", Queues::serverProperties);
    }

    private static void serverNamed(Context context) throws Exception {
        Connection connection = context.connect();
        String queue = connection.createChannel().queueDeclare().getQueue();
        Expect.holds(queue.startsWith("amq.gen-"), queue);
        Channel other = context.channel();
        Expect.refused(IOException.class, () -> other.queueDeclarePassive(queue), "another");
        connection.close();
        Channel later = context.channel();
        Expect.refused(IOException.class, () -> later.queueDeclarePassive(queue), "afterwards");
    }

    private static void autoDelete(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.unique("q");
        channel.queueDeclare(queue, false, false, true, null);
        channel.basicCancel(channel.basicConsume(queue, (tag, message) -> {}, tag -> {}));
        Expect.refused(IOException.class, () -> channel.queueDeclarePassive(queue), "afterwards");
    }

    private static void counts(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, null);
        Context.send(channel, queue, 1, 2, 3);
        channel.waitForConfirmsOrDie(10_000);
        AMQP.Queue.DeclareOk declared = channel.queueDeclarePassive(queue);
        Expect.equal(declared.getMessageCount(), 3, "messages");
        Channel other = context.channel();
        Expect.refused(IOException.class, () -> other.queueDelete(queue, false, true), "not empty");
        Expect.equal(channel.queuePurge(queue).getMessageCount(), 3, "purged");
        Deliveries.of(channel, queue);
        Expect.equal(channel.consumerCount(queue), 1L, "consumers");
        Channel third = context.channel();
        Expect.refused(IOException.class, () -> third.queueDelete(queue, true, false), "in use");
    }

    private static void inequivalent(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, Map.of("x-max-length", 5));
        context.channel().queueDeclare(queue, true, false, false, Map.of("x-max-length", 5L));
        Map<String, Object> arguments = Map.of("x-max-length", 6);
        Expect.refused(
                IOException.class,
                () -> channel.queueDeclare(queue, true, false, false, arguments),
                "another length");
        String text = ((AMQP.Channel.Close) channel.getCloseReason().getReason()).getReplyText();
        Expect.holds(text.startsWith("PRECONDITION_FAILED - inequivalent arg 'x-max-length'"), text);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> death(GetResponse message) {
        Object deaths = message.getProps().getHeaders().get("x-death");
        return ((List<Map<String, Object>>) deaths).get(0);
    }

    private static void timeToLive(Context context) throws Exception {
        Channel channel = context.channel();
        String graves = context.queue(channel, "graves", null);
        Map<String, Object> arguments =
                Map.of(
                        "x-message-ttl",
                        300,
                        "x-dead-letter-exchange",
                        "",
                        "x-dead-letter-routing-key",
                        graves);
        String queue = context.queue(channel, arguments);
        Context.send(channel, queue, "expired");
        GetResponse letter = Context.get(channel, graves, true);
        Map<String, Object> death = death(letter);
        Expect.equal(Context.text(letter.getBody()), "expired", "message");
        Expect.equal(death.get("reason").toString(), "expired", "reason");
        Expect.equal(death.get("queue").toString(), queue, "queue");
        Expect.equal(death.get("count"), 1L, "count");
    }

    private static void deliveryLimit(Context context) throws Exception {
        Channel channel = context.channel();
        String graves = context.queue(channel, "graves", null);
        Map<String, Object> arguments =
                Map.of(
                        "x-queue-type",
                        "quorum",
                        "x-delivery-limit",
                        1,
                        "x-dead-letter-exchange",
                        "",
                        "x-dead-letter-routing-key",
                        graves);
        String queue = context.queue(channel, arguments);
        Context.send(channel, queue, "poison");
        for (int attempt = 0; attempt < 2; attempt++) {
            GetResponse message = Context.get(channel, queue, false);
            channel.basicNack(message.getEnvelope().getDeliveryTag(), false, true);
        }
        GetResponse letter = Context.get(channel, graves, true);
        Expect.equal(death(letter).get("reason").toString(), "delivery_limit", "reason");
    }

    private static void maxLength(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, Map.of("x-max-length", 2));
        Context.send(channel, queue, 1, 2, 3, 4);
        channel.waitForConfirmsOrDie(10_000);
        Expect.equal(Context.getAll(channel, queue, 2), List.of("3", "4"), "messages");
    }

    private static void maxPriority(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, Map.of("x-max-priority", 9));
        for (int priority : new int[] {1, 9, 5}) {
            AMQP.BasicProperties properties =
                    new AMQP.BasicProperties.Builder().priority(priority).build();
            channel.basicPublish("", queue, properties, Context.bytes(priority));
        }
        channel.waitForConfirmsOrDie(10_000);
        Expect.equal(Context.getAll(channel, queue, 3), List.of("9", "5", "1"), "order");
    }

    private static void loginRefused(Context context) throws Exception {
        ConnectionFactory factory = context.factory();
        factory.setPassword("wrong");
        Expect.refused(
                PossibleAuthenticationFailureException.class, factory::newConnection, "password");
        ConnectionFactory elsewhere = context.factory();
        elsewhere.setVirtualHost("no-such-vhost");
        Expect.refused(IOException.class, elsewhere::newConnection, "vhost");
    }

    private static void serverProperties(Context context) throws Exception {
        Map<String, Object> properties = context.connect().getServerProperties();
        Object capabilities = properties.get("capabilities");
        for (String name : List.of("publisher_confirms", "basic.nack", "connection.blocked")) {
            Expect.equal(((Map<?, ?>) capabilities).get(name), true, name);
        }
    }
}
