package compat;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.ShutdownSignalException;

import java.math.BigDecimal;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.IntStream;

/** Confirms, returns, properties and bodies, transactions. */
final class Publishing {
    private Publishing() {}

    static void register(Suite suite) {
        suite.add("confirm-each", Publishing::confirmEach);
        suite.add("confirm-by-listener", Publishing::confirmByListener);
        suite.add("confirm-or-die", Publishing::confirmOrDie);
        suite.add("confirm-nack-on-overflow", Publishing::nackOnOverflow);
        suite.add("mandatory-return", Publishing::mandatoryReturn);
        suite.add("properties-and-headers", Publishing::propertiesAndHeaders);
        suite.add("bodies-of-any-size", Publishing::bodies);
        suite.add("transactions", Publishing::transactions);
        suite.add("exchanges", Publishing::exchanges);
        suite.add("channel-error", Publishing::channelError);
        suite.add("many-threads", Publishing::manyThreads);
    }

    private static void confirmEach(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, null);
        for (int number = 0; number < 20; number++) {
            Context.send(channel, queue, number);
            Expect.holds(channel.waitForConfirms(10_000), "confirm " + number);
        }
        Expect.equal(channel.messageCount(queue), 20L, "messages");
    }

    private static void confirmByListener(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, null);
        ConcurrentSkipListSet<Long> open = new ConcurrentSkipListSet<>();
        List<Long> refused = new CopyOnWriteArrayList<>();
        channel.addConfirmListener(
                (tag, multiple) -> {
                    if (multiple) {
                        open.headSet(tag, true).clear();
                    } else {
                        open.remove(tag);
                    }
                },
                (tag, multiple) -> refused.add(tag));
        for (int number = 0; number < 3000; number++) {
            open.add(channel.getNextPublishSeqNo());
            Context.send(channel, queue, number);
        }
        Expect.eventually(open::isEmpty, 20, "all are confirmed");
        Expect.equal(refused, List.of(), "refused");
        Expect.equal(channel.messageCount(queue), 3000L, "messages");
    }

    private static void confirmOrDie(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, Map.of("x-queue-type", "quorum"));
        Context.send(channel, queue, IntStream.range(0, 500).boxed().toArray());
        channel.waitForConfirmsOrDie(20_000);
        Expect.equal(channel.messageCount(queue), 500L, "messages");
    }

    private static void nackOnOverflow(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue =
                context.queue(channel, Map.of("x-max-length", 2, "x-overflow", "reject-publish"));
        for (int number = 0; number < 5; number++) {
            Context.send(channel, queue, number);
            Expect.equal(channel.waitForConfirms(10_000), number < 2, "message " + number);
        }
        Expect.equal(Context.getAll(channel, queue, 2), List.of("0", "1"), "messages");
    }

    private static void mandatoryReturn(Context context) throws Exception {
        Channel channel = context.confirming();
        List<String> returned = new CopyOnWriteArrayList<>();
        channel.addReturnListener(
                message ->
                        returned.add(
                                message.getReplyCode()
                                        + " "
                                        + message.getReplyText()
                                        + " "
                                        + Context.text(message.getBody())));
        String nowhere = context.unique("nowhere");
        channel.basicPublish("amq.topic", nowhere, true, null, Context.bytes("x"));
        Expect.holds(channel.waitForConfirms(10_000), "it is confirmed");
        Expect.equal(returned, List.of("312 NO_ROUTE x"), "returned");
    }

    private static void propertiesAndHeaders(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        Map<String, Object> headers = new HashMap<>();
        headers.put("byte", (byte) -1);
        headers.put("short", (short) -2);
        headers.put("int", -3);
        headers.put("long", Long.MIN_VALUE);
        headers.put("float", 1.5f);
        headers.put("double", 0.1);
        headers.put("boolean", true);
        headers.put("decimal", new BigDecimal("12.34"));
        headers.put("date", new Date(1_700_000_000_000L));
        headers.put("null", null);
        headers.put("list", List.of(1, List.of(2L), true));
        headers.put("bytes", new byte[] {0, -1});
        Date time = new Date(1_600_000_000_000L);
        AMQP.BasicProperties sent =
                new AMQP.BasicProperties(
                        "text/plain", "utf-8", headers, 2, 5, "c", "r", "60000", "m", time, "t",
                        "guest", "a", "k");
        channel.basicPublish("", queue, sent, Context.bytes("x"));
        AMQP.BasicProperties got = Context.get(channel, queue, true).getProps();
        for (Map.Entry<String, Object> header : headers.entrySet()) {
            Object value = got.getHeaders().get(header.getKey());
            Expect.equal(value, header.getValue(), "header " + header.getKey());
        }
        AMQP.BasicProperties bare = got.builder().headers(null).build();
        Expect.equal(bare.toString(), sent.builder().headers(null).build().toString(), "others");
    }

    private static void bodies(Context context) throws Exception {
        Channel channel = context.confirming();
        String queue = context.queue(channel, null);
        for (int size : new int[] {0, 1, 131_063, 131_064, 131_065, 262_129, 3_000_000}) {
            byte[] body = new byte[size];
            new Random(size).nextBytes(body);
            channel.basicPublish("", queue, null, body);
            Expect.holds(channel.waitForConfirms(20_000), size + " bytes are confirmed");
            GetResponse got = Context.get(channel, queue, true);
            Expect.equal(got.getBody(), body, "body of " + size + " bytes");
        }
    }

    private static void transactions(Context context) throws Exception {
        Channel other = context.channel();
        String queue = context.queue(other, null);
        Channel channel = context.channel();
        channel.txSelect();
        Context.send(channel, queue, "a");
        channel.txRollback();
        Context.send(channel, queue, "b");
        Expect.equal(other.basicGet(queue, true), null, "before it is committed");
        channel.txCommit();
        Expect.equal(Context.getAll(other, queue, 1), List.of("b"), "committed");
    }

    private static void exchanges(Context context) throws Exception {
        Channel channel = context.confirming();
        String alternate = context.exchange(channel, "fanout", null);
        String topic = context.exchange(channel, "topic", Map.of("alternate-exchange", alternate));
        String direct = context.exchange(channel, "direct", null);
        String headers = context.exchange(channel, "headers", null);
        channel.exchangeBind(direct, topic, "orders.#");
        String orders = context.queue(channel, "orders", null);
        String rest = context.queue(channel, "rest", null);
        String marked = context.queue(channel, "marked", null);
        channel.queueBind(orders, direct, "orders.new");
        channel.queueBind(rest, alternate, "");
        Map<String, Object> match = Map.of("x-match", "any", "a", 1, "b", 2);
        channel.queueBind(marked, headers, "", match);
        channel.basicPublish(topic, "orders.new", null, Context.bytes("order"));
        channel.basicPublish(topic, "other", null, Context.bytes("other"));
        AMQP.BasicProperties mark =
                new AMQP.BasicProperties.Builder().headers(Map.of("b", 2)).build();
        channel.basicPublish(headers, "", mark, Context.bytes("marked"));
        channel.waitForConfirmsOrDie(10_000);
        Expect.equal(Context.getAll(channel, orders, 1), List.of("order"), "orders");
        Expect.equal(Context.getAll(channel, rest, 1), List.of("other"), "rest");
        Expect.equal(Context.getAll(channel, marked, 1), List.of("marked"), "marked");
    }

    private static void channelError(Context context) throws Exception {
        Channel channel = context.channel();
        String gone = context.unique("gone");
        channel.basicPublish(gone, "k", null, Context.bytes("x"));
        Expect.eventually(() -> !channel.isOpen(), 10, "the channel is closed");
        ShutdownSignalException reason = channel.getCloseReason();
        AMQP.Channel.Close close = (AMQP.Channel.Close) reason.getReason();
        Expect.equal(close.getReplyCode(), 404, "reply code");
        String text = "NOT_FOUND - no exchange '" + gone + "' in vhost '/'";
        Expect.equal(close.getReplyText(), text, "reply text");
        Expect.equal(List.of(close.getClassId(), close.getMethodId()), List.of(60, 40), "method");
        Expect.refused(
                AlreadyClosedException.class,
                () -> {
                    channel.basicPublish("", "q", null, Context.bytes("x"));
                    return null;
                },
                "a closed channel");
        Expect.holds(channel.getConnection().isOpen(), "the connection stays");
    }

    private static void manyThreads(Context context) throws Exception {
        Channel channel = context.channel();
        String queue = context.queue(channel, null);
        List<Throwable> failures = new CopyOnWriteArrayList<>();
        Thread[] threads = new Thread[8];
        for (int index = 0; index < threads.length; index++) {
            threads[index] =
                    Suite.start(
                            () -> {
                                try {
                                    Channel own = channel.getConnection().createChannel();
                                    own.confirmSelect();
                                    Object[] bodies = IntStream.range(0, 200).boxed().toArray();
                                    Context.send(own, queue, bodies);
                                    own.waitForConfirmsOrDie(20_000);
                                } catch (Exception failure) {
                                    failures.add(failure);
                                }
                            });
        }
        for (Thread thread : threads) {
            thread.join(30_000);
        }
        Expect.equal(failures, List.of(), "failures");
        Expect.equal(channel.messageCount(queue), 1600L, "messages");
    }
}
